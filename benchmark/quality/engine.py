"""The server's worker driven by hand: one text run cold and after hits, with full logits.

Owns plans, pages and slots for one text at a time; the arithmetic is `Runner`, as it is served.
Slot 1 runs the whole text. Each other slot adopts its pages of the first `hit` positions, which
hold exact global K/V, replays into its own empty windows, and is then given the same tokens:

    slot 1     |---------------- rows [0, hit) ----------------|x|x|x|x
    slot 1+i                             |-- replay, slope d --|x|x|x|x    x: logits compared
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from treadle.srt.cache.replay import ReplaySchedule
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import CacheSection, ModelSection, ParallelSection, ServerConfig
from treadle.srt.host import read_host_facts
from treadle.srt.messages import PageUpdate, RowSpan, SamplingParams, SlotReset, StepPlan
from treadle.srt.resolve import resolve
from treadle.srt.worker.runner import Runner

CHUNK_ROWS = 1024
COLD_SLOT = 1
KV_BYTES = 1 << 30
DEPTH = 1


@dataclass(frozen=True, slots=True)
class Replayed:
    """Logits [n, V] of the rows from the hit on, and the rows that were replayed for them: in the
    lowest layer, and the mean over all layers."""

    logits: Tensor
    lowest_rows: int
    mean_rows: float


@dataclass(slots=True, eq=False)
class Engine:
    runner: Runner
    step_number: int = 0

    @classmethod
    def load(cls, path: Path, quantization: str, threads: int) -> Engine:
        """`quantization`: none or q8_0. Raises what a server's worker raises."""
        torch.set_num_threads(threads)
        config = ServerConfig(
            model=ModelSection(path=str(path), quantization=quantization),
            cache=CacheSection(memory_bytes=KV_BYTES),
            parallel=ParallelSection(num_threads=threads),
        )
        model_config = load_model_config(path)
        config = resolve(config, model_config, read_host_facts())
        return cls(Runner.load(config, model_config, path, lambda done, total, label: None))

    def compare(
        self, tokens: Sequence[int], hit: int, slopes: Sequence[int]
    ) -> tuple[Tensor, list[Replayed]]:
        """Cold logits [n, V] of rows [hit, len(tokens)), and per slope those after a hit.

        `hit` is a multiple of the page size.
        """
        assert hit % self.runner.page_size == 0
        slots = list(range(COLD_SLOT, COLD_SLOT + 1 + len(slopes)))
        first = self._enter(tokens, hit, slopes)
        rows = [[logits] for logits in first]
        for position in range(hit + 1, len(tokens)):
            spans = [RowSpan(slot, position, position, position + 1, 1) for slot in slots]
            for row, logits in zip(rows, self.step(tokens, spans), strict=True):
                row.append(logits)
        cold, *warm = (torch.stack(row) for row in rows)
        return cold, [self._replayed(x, hit, d) for x, d in zip(warm, slopes, strict=True)]

    def cold(self, tokens: Sequence[int], hit: int) -> Tensor:
        """Logits [n, V] of rows [hit, len(tokens)), nothing replayed."""
        return self.compare(tokens, hit, ())[0]

    def schedule(self, slope: int, depth: int = DEPTH) -> ReplaySchedule:
        config = self.runner.config
        kinds = tuple(layer.kind for layer in config.layers)
        return ReplaySchedule.staircase(kinds, config.window, slope, depth)

    def step(
        self, tokens: Sequence[int], spans: Sequence[RowSpan], entry: Entry | None = None
    ) -> Tensor:
        """Logits [n, V] of the sampled spans, a copy."""
        data, ids = array("i"), array("i")
        for span in spans:
            data.extend(span)
            ids.extend(tokens[span.start : span.end])
        resets, pages = ((entry.reset,), (entry.pages,)) if entry else ((), ())
        self.step_number += 1
        with torch.inference_mode():
            plan = StepPlan(self.step_number, data, ids, resets, pages)
            return self.runner.forward(plan)[0].clone()

    def _enter(self, tokens: Sequence[int], hit: int, slopes: Sequence[int]) -> list[Tensor]:
        """Fill every slot up to row `hit`. Logits [V] of that row, by slot."""
        size = self.runner.page_size
        num_pages = -(-len(tokens) // size)
        pages = array("i", range(1, num_pages + 1))
        entry: Entry | None = make_entry(COLD_SLOT, pages, 0, 0, 0)
        for start in range(0, hit, CHUNK_ROWS):
            end = min(hit, start + CHUNK_ROWS)
            self.step(tokens, [RowSpan(COLD_SLOT, start, start, end, 0)], entry)
            entry = None
        first = [self.step(tokens, [RowSpan(COLD_SLOT, hit, hit, hit + 1, 1)])[0]]
        for i, slope in enumerate(slopes, start=1):
            own = array("i", range(1 + i * num_pages, 1 + (i + 1) * num_pages))
            adopted = pages[: hit // size] + own[hit // size :]
            floor = self.schedule(slope).entry_start(0, hit)
            entry = make_entry(COLD_SLOT + i, adopted, floor, hit, slope)
            span = RowSpan(COLD_SLOT + i, floor, hit, hit + 1, 1)
            first.append(self.step(tokens, [span], entry)[0])
        return first

    def _replayed(self, logits: Tensor, hit: int, slope: int) -> Replayed:
        schedule = self.schedule(slope)
        starts = [schedule.entry_start(layer, hit) for layer in range(schedule.num_layers)]
        return Replayed(logits, hit - starts[0], hit - sum(starts) / len(starts))


@dataclass(frozen=True, slots=True)
class Entry:
    """A request enters a slot, and the pages of all its positions."""

    reset: SlotReset
    pages: PageUpdate


def make_entry(
    slot: int, pages: array[int], floor: int, hit: int, slope: int, depth: int = DEPTH
) -> Entry:
    """Rows from `floor` on are run, those below `hit` are replayed."""
    params = SamplingParams(max_new_tokens=1, temperature=0.0)
    reset = SlotReset(slot, floor, hit, slope, depth, hit + 1, 0, params)
    return Entry(reset, PageUpdate(slot, 0, pages))
