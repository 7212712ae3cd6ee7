"""The curves of all documents: measured one by one, kept in a file, summed up and drawn.

Each document is a line of `.cache/replay_drift/NAME.jsonl`, so a run that is stopped goes on where
it was. A file of other settings, or of another commit, is refused.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from benchmark.environment import ROOT
from benchmark.quality.corpora import load_documents
from benchmark.quality.curves import Measured, Plan, Point, Share, measure
from benchmark.quality.engine import Engine
from benchmark.quality.hits import Shape
from benchmark.quality.texts import Text

from treadle.srt.tokenizer.encode import Tokenizer

STATE = ROOT / ".cache" / "replay_drift"
CHARACTERS = 8  # of a token at most on average, so that no book is encoded whole
EVERY = 3  # of so many documents one has sessions of all shapes
EXACT = 2  # documents with an exact replay

Key = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """Over the documents of one kind of point. Standard errors are over documents."""

    part: str
    slope: int
    depth: int
    hit: int
    distance: int
    generation: int
    documents: int
    mean_rows: float
    mean_kl: float
    kl_error: float
    worst_kl: float
    worst_text: str
    top1: float
    dnll: float
    dnll_error: float


@dataclass(frozen=True, slots=True)
class Job:
    """`name`: of the state's file. `setting`: what makes two runs different."""

    path: Path
    corpora: Path
    documents: int
    quantization: str
    threads: int
    name: str
    commit: str

    @property
    def setting(self) -> dict[str, object]:
        return {
            "model": self.path.name,
            "quantization": self.quantization,
            "commit": self.commit,
            "plan": dataclasses.asdict(Plan()),
        }


def run(job: Job) -> list[Measured]:
    """All documents, those that were measured before included. Raises SystemExit."""
    plan, file = Plan(), STATE / f"{job.name}.jsonl"
    found = _kept(file, job)
    texts = _documents(job, plan)
    engine: Engine | None = None
    for index, (text, tokens) in enumerate(texts):
        if text.name in found:
            continue
        engine = engine or Engine.load(job.path, job.quantization, job.threads)
        shapes = plan.shapes if index % EVERY == 0 else (Shape(0),)
        measured = measure(engine, plan, Share(shapes, index < EXACT), text, tokens)
        found[text.name] = measured
        with file.open("ab") as out:
            out.write(orjson.dumps(measured, option=orjson.OPT_APPEND_NEWLINE))
        done = f"{len(found)} of {len(texts)}"
        print(f"{done}: {measured.seconds:.0f} s, {text.name}", file=sys.stderr, flush=True)
    return [found[text.name] for text, _ in texts]


def _documents(job: Job, plan: Plan) -> list[tuple[Text, list[int]]]:
    """The first that are long enough, as ids."""
    tokenizer = Tokenizer.load(job.path)
    found: list[tuple[Text, list[int]]] = []
    for text in load_documents(job.corpora):
        need = plan.num_tokens(is_exact=len(found) < EXACT)
        ids = tokenizer.encode(text.content[: CHARACTERS * need], add_special=True)
        if len(ids) >= need:
            found.append((text, ids))
        if len(found) == job.documents:
            return found
    raise SystemExit(f"--documents {job.documents}: {len(found)} are long enough")


def _kept(file: Path, job: Job) -> dict[str, Measured]:
    """What an earlier run has left; writes the setting into a new file."""
    setting = orjson.loads(orjson.dumps(job.setting))
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(setting, option=orjson.OPT_APPEND_NEWLINE))
        return {}
    first, *lines = file.read_bytes().splitlines()
    if orjson.loads(first) != setting:
        raise SystemExit(f"{file} is of another commit or setting: remove it, or choose --out")
    found = [_read(line) for line in lines]
    return {measured.text: measured for measured in found}


def _read(line: bytes) -> Measured:
    fields = orjson.loads(line)
    fields["points"] = [Point(**point) for point in fields["points"]]
    return Measured(**fields)


def summarise(measured: Sequence[Measured]) -> list[Summary]:
    """In the order of the plan's parts."""
    groups: dict[Key, list[tuple[str, Point]]] = {}
    for document in measured:
        for p in document.points:
            key = (p.part, p.slope, p.depth, p.hit, p.distance, p.generation)
            groups.setdefault(key, []).append((document.text, p))
    return [_summary(group) for _, group in sorted(groups.items())]


def _summary(group: Sequence[tuple[str, Point]]) -> Summary:
    point, count = group[0][1], len(group)
    kls = [statistics.mean(p.kl) for _, p in group]
    losses = [p.dnll for _, p in group]
    worst = max(range(count), key=kls.__getitem__)
    return Summary(
        part=point.part,
        slope=point.slope,
        depth=point.depth,
        hit=point.hit,
        distance=point.distance,
        generation=point.generation,
        documents=count,
        mean_rows=point.mean_rows,
        mean_kl=statistics.mean(kls),
        kl_error=_error(kls),
        worst_kl=kls[worst],
        worst_text=group[worst][0],
        top1=statistics.mean(p.top1 for _, p in group),
        dnll=statistics.mean(losses),
        dnll_error=_error(losses),
    )


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def table(summaries: Sequence[Summary]) -> str:
    out = [
        "| part | slope | windows | hit | distance | generation | documents | rows a layer |"
        " mean KL (SE) | worst text | top-1 % | dNLL (SE) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in summaries:
        out.append(
            f"| {s.part} | {s.slope} | {s.depth} | {s.hit} | {s.distance} | {s.generation} |"
            f" {s.documents} | {s.mean_rows:.0f} | {s.mean_kl:.2e} ({s.kl_error:.1e}) |"
            f" {s.worst_kl:.2e} {s.worst_text} | {100 * s.top1:.1f} |"
            f" {s.dnll:+.5f} ({s.dnll_error:.5f}) |"
        )
    return "\n".join(out)
