"""A row's bits do not depend on what else is in its step: neighbours, drafts, chunks.

Greedy speculative decoding equals plain decoding only so. Of every row that is wanted, hidden
values and logits are compared to the bit, with quantisers on, where a difference in the last bit
becomes a large one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from test.v41 import NAMES, PAGE, Loaded, loaded
from treadle.kernels import dispatch
from treadle.srt.layers.latent_pools import LatentPools
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.worker.mapping import Spans, Trim, build_batch, remember
from treadle.srt.worker.state import SlotTable

LENGTHS = (1, 2, 37, 128, 131, 250)
DECODED = 6
PAGES = 150  # of a request

pytestmark = pytest.mark.skipif(
    dispatch.backend() != "cpu", reason="the references of the operators sum in torch's order"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Shapes: hidden [n, D], logits [n, V]."""

    hidden: Tensor
    logits: Tensor

    @classmethod
    def join(cls, parts: list[Rows]) -> Rows:
        return cls(torch.cat([x.hidden for x in parts]), torch.cat([x.logits for x in parts]))

    def differs(self, other: Rows) -> bool:
        assert self.hidden.shape == other.hidden.shape
        return not (
            torch.equal(self.hidden, other.hidden) and torch.equal(self.logits, other.logits)
        )


class Requests:
    """Some requests of a model, in slots from 1 on, each with pages of its own."""

    def __init__(self, parts: Loaded, ids: list[list[int]], trim: Trim | None = None) -> None:
        config, self.parts, self.ids, self.trim = parts.config, parts, ids, trim
        slots, pages = len(ids) + 1, len(ids) * PAGES + 1
        self.pools = LatentPools.allocate(
            config, parts.formats, pages, PAGE, slots, 160, tail_rows=8, draft_rings=0
        )
        self.slots = SlotTable.allocate(
            slots, PAGES, len(config.layers), config.latent.lookback, trims=trim is not None
        )
        self.done = [0] * len(ids)
        for index in range(len(ids)):
            first = 1 + index * PAGES
            owned = array("i", range(first, first + PAGES))
            self.slots.update_pages(PageUpdate(index + 1, 0, owned))
            self.pools.reset(index + 1)
            self._reset(index)

    def _reset(self, index: int) -> None:
        size = len(self.ids[index]) - DECODED
        trim_end = size if self.trim else 0
        sampling = SamplingParams(1)
        reset = SlotReset(index + 1, 0, 0, 0, 1, size, 0, sampling, trim_end=trim_end)
        self.slots.reset(reset, None)

    def step(self, counts: dict[int, int], wanted: int | None = None) -> dict[int, Rows]:
        """Runs the next `counts` rows of each request; the last `wanted`, or all, leave."""
        spans, ids = array("i"), array("i")
        for index, count in counts.items():
            start, end = self.done[index], self.done[index] + count
            spans.extend([index + 1, start, start, end, count if wanted is None else wanted])
            ids.extend(self.ids[index][start:end])
            self.done[index] = end
        plan = StepPlan(0, spans, ids)
        batch = build_batch(plan, self.slots, PAGE, self.trim)
        with torch.inference_mode():
            hidden = self.parts.model.forward(batch, self.pools)
            logits = self.parts.model.head(hidden)
        remember(plan, batch, self.slots, Spans.from_plan(plan).end)
        sizes = [count if wanted is None else wanted for count in counts.values()]
        parts = zip(counts, hidden.split(sizes), logits.split(sizes), strict=True)
        return {index: Rows(h, x) for index, h, x in parts}

    def alone(self, index: int, counts: list[int]) -> Rows:
        """Rows of several steps, in each of which there is nothing else."""
        return Rows.join([self.step({index: count})[index] for count in counts])


def prompts(parts: Loaded) -> list[list[int]]:
    """As long as `LENGTHS`, and the tokens that follow."""
    generator = torch.Generator().manual_seed(7)
    high = parts.config.vocab_size
    return [torch.randint(3, high, (n + DECODED,), generator=generator).tolist() for n in LENGTHS]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_requests_together_are_those_of_each_alone(name):
    parts = loaded(name, False)
    together, alone = (Requests(parts, prompts(parts)) for _ in range(2))
    steps = [dict(enumerate(LENGTHS)), *[dict.fromkeys(range(len(LENGTHS)), 1)] * DECODED]
    found = [together.step(counts) for counts in steps]
    for index, size in enumerate(LENGTHS):
        rows = Rows.join([step[index] for step in found])
        assert not rows.differs(alone.alone(index, [size] + [1] * DECODED)), index


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_one_span_are_those_of_steps_of_one_row(name):
    """A verification runs drafts in one span."""
    parts = loaded(name, False)
    drafts, plain = (Requests(parts, prompts(parts)) for _ in range(2))
    for requests in (drafts, plain):
        requests.step(dict(enumerate(LENGTHS)))
    found = drafts.step(dict.fromkeys(range(len(LENGTHS)), DECODED))
    for index, rows in found.items():
        assert not rows.differs(plain.alone(index, [1] * DECODED)), index


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [7, 63, 129])
def test_rows_of_chunks_are_those_of_the_whole(name, chunk):
    parts, index = loaded(name, False), len(LENGTHS) - 1
    chunked, whole = (Requests(parts, prompts(parts)) for _ in range(2))
    size = LENGTHS[index]
    counts = [chunk] * (size // chunk) + [size % chunk, 1]
    assert not chunked.alone(index, counts).differs(whole.alone(index, [size, 1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_trimmed_prompt_in_chunks_is_the_whole_one(name):
    """B17: the last rows of the prompt are run above the cut, whatever chunk they come in."""
    parts, index = loaded(name, False), len(LENGTHS) - 1
    trim = Trim(parts.config.latent.cut, parts.config.window)
    chunked, whole = (Requests(parts, prompts(parts), trim) for _ in range(2))
    chunked.step({index: 101}, wanted=0)
    chunked.step({index: 76}, wanted=0)
    ends = [x.step({index: LENGTHS[index] - x.done[index]}, wanted=1) for x in (chunked, whole)]
    assert not ends[0][index].differs(ends[1][index])
    assert not chunked.alone(index, [1, 1]).differs(whole.alone(index, [2]))
