"""Drift of a replay against its depth, its slope, the length of the hit, the distance from it and
the number of replays behind it: one text, one cold run, many hits.

Positions of a text, with the default plan (32 rows are compared after a hit, 16 at other places):

    hits      1024, 2048, 3072     slopes 0 and 32; at the last also slope 64, depths 2 and 4
    far       2048                 rows up to 512 behind the hit
    sessions  1104, 1136 .. 1392   ten turns of 32 tokens, each a hit on the turn before: the
                                   generation of a row is the number of replays behind it (B34)
    exact     8192                 slope W-1, which is beyond the exact depth (3.4)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from benchmark.quality.engine import Engine
from benchmark.quality.hits import Rows, Shape, TextRuns, fast_kl
from benchmark.quality.texts import Text
from torch import Tensor

DIGITS = 4  # of a KL; results hold thousands


@dataclass(frozen=True, slots=True)
class Plan:
    """Tokens and rows. Shapes of `more` are for the last hit."""

    hits: tuple[int, ...] = (1024, 2048, 3072)
    shapes: tuple[Shape, ...] = (Shape(0), Shape(32))
    more: tuple[Shape, ...] = (Shape(64), Shape(0, 2), Shape(0, 4))
    num_rows: int = 32
    num_far: int = 16
    distances: tuple[int, ...] = (64, 128, 256, 496)
    session: int = 1104
    turn: int = 32
    turns: int = 10
    exact_hit: int = 8192

    @property
    def session_hits(self) -> list[int]:
        return [self.session + i * self.turn for i in range(self.turns)]

    def num_tokens(self, *, is_exact: bool) -> int:
        return (self.exact_hit if is_exact else self.hits[-1]) + self.num_rows + 1

    def windows(self, *, is_exact: bool) -> list[Rows]:
        """All rows whose cold logits are needed."""
        firsts = [(hit, self.num_rows) for hit in self.hits]
        firsts += [(self.hits[1] + d, self.num_far) for d in self.distances]
        firsts += [(hit, self.num_far) for hit in self.session_hits]
        firsts += [(self.exact_hit, self.num_rows)] if is_exact else []
        return [(first, first + count) for first, count in sorted(firsts)]


@dataclass(frozen=True, slots=True)
class Share:
    """What of a plan one text is for beyond its hits: sessions take the most time."""

    sessions: tuple[Shape, ...]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Point:
    """Consecutive rows after a hit. `distance`: of the first from the hit. `generation`: replays
    behind it. `kl` by row, nats; `top1`: share of rows whose likeliest id is that of the cold run;
    `dnll`: change of the loss of the text's own next tokens, per token. `mean_rows`: rows replayed
    per layer."""

    part: str
    slope: int
    depth: int
    hit: int
    distance: int
    generation: int
    mean_rows: float
    kl: list[float]
    top1: float
    dnll: float


@dataclass(frozen=True, slots=True)
class Measured:
    text: str
    kind: str
    num_tokens: int
    seconds: float
    points: list[Point]


def measure(
    engine: Engine, plan: Plan, share: Share, text: Text, tokens: Sequence[int]
) -> Measured:
    """`tokens`: as many as the plan takes at least."""
    began = time.perf_counter()
    tokens = tokens[: plan.num_tokens(is_exact=share.is_exact)]
    return Measured(
        text=text.name,
        kind=text.kind,
        num_tokens=len(tokens),
        points=list(_Text(engine, plan, share, tokens).points()),
        seconds=round(time.perf_counter() - began, 1),
    )


class _Text:
    def __init__(self, engine: Engine, plan: Plan, share: Share, tokens: Sequence[int]) -> None:
        self._engine, self._plan, self._share, self._tokens = engine, plan, share, tokens
        self._runs = TextRuns(engine, tokens)
        windows = plan.windows(is_exact=share.is_exact)
        found = self._runs.cold(windows)
        self._cold = {first: rows for (first, _), rows in zip(windows, found, strict=True)}

    def points(self) -> Iterator[Point]:
        plan = self._plan
        for hit in plan.hits:
            for shape in (*plan.shapes, *(plan.more if hit == plan.hits[-1] else ())):
                is_far = hit == plan.hits[1] and shape in plan.shapes
                yield from self._hit(hit, shape, plan.distances if is_far else ())
        for shape in self._share.sessions:
            found = self._runs.session(plan.session_hits, plan.num_far, shape)
            for turn, (hit, rows) in enumerate(zip(plan.session_hits, found, strict=True), 1):
                yield self._point("session", shape, hit, 0, turn, rows)
        if self._share.is_exact:
            shape, hit = Shape(self._engine.runner.config.window - 1), plan.exact_hit
            (rows,) = self._runs.hit(hit, [(hit, hit + plan.num_rows)], shape)
            yield self._point("exact", shape, hit, 0, 0, rows)

    def _hit(self, hit: int, shape: Shape, distances: Sequence[int]) -> Iterator[Point]:
        plan = self._plan
        wanted = [(hit, hit + plan.num_rows)]
        wanted += [(hit + d, hit + d + plan.num_far) for d in distances]
        found = self._runs.hit(hit, wanted, shape)
        for (first, _), rows in zip(wanted, found, strict=True):
            part = "far" if first > hit else "hit"
            yield self._point(part, shape, hit, first - hit, 1, rows)

    def _point(
        self, part: str, shape: Shape, hit: int, distance: int, generation: int, rows: Tensor
    ) -> Point:
        first = hit + distance
        cold = self._cold[first]
        following = self._tokens[first + 1 : first + 1 + len(rows)]
        kl = fast_kl(cold, rows)
        schedule = self._engine.schedule(shape.slope, shape.depth)
        starts = [schedule.entry_start(layer, hit) for layer in range(schedule.num_layers)]
        return Point(
            part=part,
            slope=shape.slope,
            depth=shape.depth,
            hit=hit,
            distance=distance,
            generation=generation,
            mean_rows=round(hit - sum(starts) / len(starts), 1),
            kl=[float(f"{x:.{DIGITS}g}") for x in kl.tolist()],
            top1=float((cold.argmax(1) == rows.argmax(1)).double().mean()),
            dnll=_loss(rows, following) - _loss(cold, following),
        )


def _loss(logits: Tensor, tokens: Sequence[int]) -> float:
    """Mean loss of `tokens` [n], each the next after its row."""
    chosen = logits[torch.arange(len(tokens)), torch.tensor(tokens)]
    return float((torch.logsumexp(logits, 1) - chosen).double().mean())
