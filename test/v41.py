"""DeepSeek-V4.1 run by hand: one slot, plans as the scheduler would make them, no processes."""

from __future__ import annotations

import functools
import json
import os
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from treadle.srt.cache.replay import ReplaySchedule
from treadle.srt.checkpoint import load_model_config
from treadle.srt.layers.latent_pools import LatentPools
from treadle.srt.layers.row_formats import RowFormats
from treadle.srt.loader.packed import PackedWeights, Weights
from treadle.srt.loader.share import WHOLE, Share
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.model_config import LayerKind, ModelConfig
from treadle.srt.models.deepseek_v41 import DeepseekV41
from treadle.srt.models.deepseek_v41_build import Builder
from treadle.srt.models.dspark import Dspark
from treadle.srt.models.moved import moved
from treadle.srt.worker.mapping import Spans, Trim, build_batch, remember
from treadle.srt.worker.state import SlotTable

TEST = Path(__file__).parent
CHECKPOINTS = TEST / "checkpoints"
GOLDEN = TEST / "golden"
NAMES = ("v41-nano", "v41-mini")
PAGE = 2  # hits of the expected outputs end anywhere even
SLOT = 1
DEVICE = torch.device(os.environ.get("TREADLE_TEST_DEVICE", "cpu"))  # with TREADLE_KERNELS=triton
# Outside the manifest's allowance with quantisers on, though exact without them: one value on the
# other side of a rounding tie in an early layer moves all that follows.
FLIPPED = {
    "trim_129_prompt_chunk0_clip": 2.5,
    "cold_130": 2.0,
    "warm_H128_N198_full_replay": 1.2,
    "warm_H256_N257_trim_drop": 1.2,
}
if DEVICE.type == "cuda":  # other sums round other values
    FLIPPED |= {"trim_777_chunk_chunk200_clip": 1.2, "warm_H130_N131_full_drop": 1.2}


@dataclass(frozen=True, slots=True)
class Loaded:
    config: ModelConfig
    model: DeepseekV41
    draft: Dspark
    formats: RowFormats


def builder_of(
    config: ModelConfig, weights: Weights, *, is_rounding: bool = True, share: Share = WHOLE
) -> Builder:
    assert config.latent is not None
    return Builder(config, config.latent, weights, is_rounding, share)


@functools.cache
def loaded(name: str, is_exact: bool) -> Loaded:
    """`is_exact`: no quantiser on activations and caches."""
    folder = CHECKPOINTS / name
    config = load_model_config(folder)
    latent = config.latent
    assert latent is not None
    builder = builder_of(config, PackedWeights.open(folder, config), is_rounding=not is_exact)
    model = builder.model(folder)
    draft = builder.draft(model)
    assert draft is not None
    kind = "float32" if is_exact else "fp4"
    formats = RowFormats.of(kind, config.head_dim, latent.indexer.head_dim)
    return Loaded(config, moved(model, DEVICE), draft, formats)


@functools.cache
def manifest(name: str) -> dict[str, dict]:
    cases = json.loads((GOLDEN / name / "manifest.json").read_text())["cases"]
    return {case["file"].removesuffix(".safetensors"): case for case in cases}


def golden(name: str, case: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / name / f"{case}.safetensors")


@dataclass(slots=True)
class Run:
    """One request after another in one slot; pages stay, the window is emptied by `admit`."""

    parts: Loaded
    trim: Trim | None = None
    ring_rows: int = 160
    pools: LatentPools = field(init=False)
    slots: SlotTable = field(init=False)
    ids: list[int] = field(init=False, default_factory=list)
    computed: int = field(init=False, default=0)
    next: int = field(init=False, default=0)
    layer_rows: list[int] = field(init=False, default_factory=list)
    taps: Tensor = field(init=False)

    def __post_init__(self) -> None:
        config, num_pages = self.parts.config, 2100 // PAGE
        self.pools = LatentPools.allocate(
            config,
            self.parts.formats,
            num_pages,
            PAGE,
            2,
            self.ring_rows,
            tail_rows=8,
            draft_rings=config.latent.draft.num_blocks,
            device=DEVICE,
        )
        self.slots = SlotTable.allocate(
            2, num_pages, len(config.layers), config.latent.lookback, trims=True
        )
        self.slots.update_pages(PageUpdate(SLOT, 0, array("i", range(1, num_pages))))

    def admit(self, ids: list[int], hit: int = 0, replay: int = 0, *, trims: bool = False) -> None:
        """`hit` rows have their entries in the pages already, the last `replay` run again."""
        start = hit - replay
        config = self.parts.config
        kinds = (LayerKind.WINDOW,) * len(config.layers)
        schedule = ReplaySchedule.staircase(kinds, config.window, 0, 1) if replay else None
        reset = SlotReset(
            SLOT,
            start,
            hit,
            0,
            1,
            len(ids),
            0,
            SamplingParams(1),
            trim_end=len(ids) if trims else 0,
            lookback=array("i", [ids[p] for p in range(start - 1, max(-1, start - 4), -1)]),
        )
        if replay and replay < config.window:
            schedule = None  # the whole hit is run again, from its first row
        self.pools.reset(SLOT)
        self.slots.reset(reset, schedule)
        self.ids, self.computed, self.next = list(ids), hit, start

    def run(self, end: int, wanted: int = 1) -> Tensor:
        """Rows up to `end`; logits of the last `wanted`."""
        plan = StepPlan(
            0,
            array("i", [SLOT, self.next, max(self.computed, self.next), end, int(wanted > 0)]),
            array("i", self.ids[self.next : end]),
        )
        batch = build_batch(plan, self.slots, PAGE, self.trim)
        if wanted > 1:
            batch = _wanting(batch, wanted)
        there = moved(batch, DEVICE)
        with torch.inference_mode():
            hidden, self.taps = self.parts.model.run(there, self.pools)
            logits = self.parts.model.head(hidden).cpu()
        remember(plan, batch, self.slots, Spans.from_plan(plan).end)
        self.layer_rows = [len(rows.positions) for rows in batch.layers]
        self.next, self.computed = end, max(self.computed, end)
        return logits

    def greedy(self, logits: Tensor, count: int) -> list[int]:
        """`count` tokens, the first of which `logits` [n, V] choose."""
        out = [int(logits[-1].argmax())]
        while len(out) < count:
            self.ids.append(out[-1])
            out.append(int(self.run(len(self.ids))[-1].argmax()))
        return out


def _wanting(batch, wanted):
    """The batch with the last `wanted` rows leaving the last layer."""
    from dataclasses import replace

    last = batch.layers[-2] if len(batch.layers) > 1 else batch.layers[-1]
    rows = len(last.out_positions)
    first = rows - wanted
    entering = last.out_positions
    inner = batch.layers[-1]
    runs = inner.window_runs.clone()
    runs[0, 3], runs[0, 4] = 0, wanted
    paged = torch.tensor([[SLOT, 0, wanted, int(entering[first])]])
    keep = torch.arange(first, rows)
    swapped = replace(inner, keep=keep, window_runs=runs, paged_runs=paged)
    return replace(batch, layers=(*batch.layers[:-1], swapped))
