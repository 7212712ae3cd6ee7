"""Drives a Runner with hand-made plans: requests with their own pages and slots, no scheduler."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from treadle.srt.layers.pools import KVPools, PagePool, WindowPool
from treadle.srt.layers.rope import rope_tables
from treadle.srt.messages import PageUpdate, RowSpan, SamplingParams, SlotReset, StepPlan
from treadle.srt.model_config import LayerConfig, LayerKind, ModelConfig, Rope
from treadle.srt.models.decoder import Parameters
from treadle.srt.models.registry import build_model
from treadle.srt.worker.engine import Engine
from treadle.srt.worker.runner import Runner
from treadle.srt.worker.state import SlotTable


def toy_config(pattern: str = "ssgssg", window: int = 8, **sizes: int) -> ModelConfig:
    """A small Gemma 3: 's' a window layer, 'g' a global one, bottom first."""
    kinds = {"s": LayerKind.WINDOW, "g": LayerKind.GLOBAL}
    bases = {"s": 1e4, "g": 1e6}
    return ModelConfig(
        architecture="Gemma3ForCausalLM",
        model_type="gemma3_text",
        vocab_size=sizes.get("vocab_size", 97),
        hidden_size=32,
        intermediate_size=64,
        num_heads=sizes.get("num_heads", 4),
        num_kv_heads=sizes.get("num_kv_heads", 2),
        head_dim=sizes.get("head_dim", 8),
        context_len=1024,
        rms_norm_eps=1e-6,
        activation="gelu_tanh",
        attention_scale=sizes.get("head_dim", 8) ** -0.5,
        embed_scale=32**0.5,
        qkv_bias=False,
        o_bias=False,
        qk_norm=True,
        norm_plus_one=False,
        sandwich_norm=True,
        tie_embeddings=True,
        window=window,
        layers=tuple(LayerConfig(kinds[x], Rope(bases[x])) for x in pattern),
        eos_ids=(),
        is_quantized=False,
    )


def make_runner(
    config: ModelConfig,
    values: dict[str, Tensor],
    *,
    page_size: int = 4,
    num_pages: int = 256,
    spare_rows: int = 0,
) -> Runner:
    """Eight slots with rings of a window and `spare_rows`."""
    dtype = values["embed"].dtype
    tables = rope_tables(config, config.context_len, dtype)
    model = build_model(Parameters(config, values, tables, dtype))
    pools = KVPools(
        PagePool.allocate(config, num_pages, page_size, dtype),
        WindowPool.allocate(config, 9, max(config.window, 1) + spare_rows, dtype),
    )
    slots = SlotTable.allocate(9, config.context_len // page_size, len(config.layers))
    engine = Engine(partial(model.forward, pools=pools), model.head, pools)
    return Runner(config, engine, slots, page_size)


def kv_pools(runner: Runner) -> KVPools:
    """The pools of a model with ordinary attention."""
    assert isinstance(runner.engine.pools, KVPools)
    return runner.engine.pools


@dataclass
class Row:
    """What a request wants of the next step: rows [start, end), those below `computed` replayed."""

    slot: int
    start: int
    computed: int
    end: int
    sample: int = 1


@dataclass
class Driver:
    """`tokens[slot]` are the known ids of each slot's request."""

    runner: Runner
    tokens: dict[int, list[int]] = field(default_factory=dict)
    step_number: int = 0
    next_page: int = 1
    page_rows: dict[int, list[int]] = field(default_factory=dict)
    resets: list[SlotReset] = field(default_factory=list)
    updates: list[PageUpdate] = field(default_factory=list)

    def enter(
        self,
        slot: int,
        tokens: list[int],
        *,
        adopted: list[int] | None = None,
        hit: int = 0,
        floor: int = 0,
        slope: int = 0,
        depth: int = 1,
        source: int = 0,
    ) -> None:
        """Give `slot` to a request; `adopted` are the pages of the first `hit` positions."""
        self.tokens[slot] = tokens
        self.page_rows[slot] = list(adopted or [])
        params = SamplingParams(max_new_tokens=8, temperature=0.0)
        sizes = (slot, floor, hit, slope, depth, len(tokens), 0)
        self.resets.append(SlotReset(*sizes, params, source=source))
        if adopted:
            self.updates.append(PageUpdate(slot, 0, array("i", adopted)))

    def step(self, rows: list[Row]) -> Tensor:
        """Logits [n, V] of the rows with `sample`."""
        data, ids = array("i"), array("i")
        for row in rows:
            self._grow(row.slot, row.end)
            span = RowSpan(row.slot, row.start, row.computed, row.end, row.sample)
            data.extend(span)
            ids.extend(self.tokens[row.slot][row.start : row.end])
        self.step_number += 1
        plan = StepPlan(self.step_number, data, ids, tuple(self.resets), tuple(self.updates))
        self.resets, self.updates = [], []
        with torch.inference_mode():
            return self.runner.forward(plan)[0]

    def cold(self, slot: int, tokens: list[int], chunks: list[int] | None = None) -> Tensor:
        """Run a whole prompt from 0; chunk ends in `chunks`. Logits [V] of the last row."""
        self.enter(slot, tokens)
        start = 0
        for end in [*(chunks or []), len(tokens)]:
            out = self.step([Row(slot, start, start, end, int(end == len(tokens)))])
            start = end
        return out[-1]

    def decode(self, slot: int, token: int) -> Tensor:
        """Append `token` and run its row. Logits [V]."""
        self.tokens[slot] = [*self.tokens[slot], token]
        n = len(self.tokens[slot])
        return self.step([Row(slot, n - 1, n - 1, n)])[0]

    def _grow(self, slot: int, end: int) -> None:
        pages = self.page_rows[slot]
        first = len(pages)
        while len(pages) * self.runner.page_size < end:
            pages.append(self.next_page)
            self.next_page += 1
        if len(pages) > first:
            self.updates.append(PageUpdate(slot, first, array("i", pages[first:])))
