"""Executes plans: resets and page updates, batch, forward, sample. Decides nothing.

All workers of a replica execute the same plans in the same order. A step allocates no large
buffer: pools are made here once, and freed heap memory is kept by the process (`heap.py`).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ..cache.layout import KVLayout, plan_capacity
from ..cache.replay import ReplaySchedule, ScheduleCache
from ..config import ServerConfig
from ..layers.linear import Matrix, WeightPolicy
from ..layers.pools import KVPools, PagePool, WindowPool
from ..layers.rope import rope_tables
from ..loader.weights import iter_weights
from ..messages import SPAN_FIELDS, Ready, Rewind, SlotReset, StepPlan, StepResult
from ..model_config import ModelConfig
from ..models.decoder import Model, Parameters, matrix_bytes
from ..models.registry import build_model
from ..scores import PromptScores
from .mapping import build_batch
from .profiler import Profiler
from .sampler import sample
from .scoring import HiddenRows, score
from .state import SlotTable

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}

RING_ALIGN = 1  # the CPU kernels take rings of any length

ProgressFn = Callable[[int, int, str], None]


@dataclass(slots=True, eq=False)
class Runner:
    """`weight_bytes` is for the report at start."""

    config: ModelConfig
    model: Model
    pools: KVPools
    slots: SlotTable
    page_size: int
    weight_bytes: int = 0
    has_processed_logprobs: bool = False  # those of output: after bias, penalties, temperature
    profiler: Profiler = field(default_factory=Profiler)
    _schedules: ScheduleCache = field(init=False)

    def __post_init__(self) -> None:
        kinds = tuple(layer.kind for layer in self.config.layers)
        self._schedules = ScheduleCache(kinds, self.config.window)

    @classmethod
    def load(
        cls,
        config: ServerConfig,
        model_config: ModelConfig,
        path: Path,
        progress: ProgressFn,
    ) -> Runner:
        """Read the checkpoint, allocate the pools. `config` is resolved: no value is "auto".

        Raises `CheckpointError` for files, `ConfigError` for sizes that do not fit.
        """
        policy = WeightPolicy(DTYPES[config.model.dtype], config.model.quantization == "q8_0")
        values: dict[str, Matrix] = {}
        for name, weight in iter_weights(path, model_config, config.model.load_format, progress):
            values[name] = policy.keep(weight) if weight.ndim == 2 else weight.float()
        weight_bytes = matrix_bytes(values)
        tables = rope_tables(model_config, config.model.context_len, policy.activation_dtype)
        model = build_model(Parameters(model_config, values, tables, policy.activation_dtype))
        slots, pools = allocate(config, model_config)
        is_processed = config.model.logprobs_mode == "processed_logprobs"
        page_size = config.cache.page_size
        return cls(model_config, model, pools, slots, page_size, weight_bytes, is_processed)

    def capacity(self, rank: int) -> Ready:
        """What the scheduler may hand out; page 0 and slot 0 are sinks and counted here."""
        self.profiler.rank = rank
        return Ready(
            role="worker",
            rank=rank,
            num_pages=self.pools.pages.k.shape[1],
            num_slots=self.slots.page_table.shape[0],
            weight_bytes=self.weight_bytes,
            kv_bytes=self.pools.pages.num_bytes + self.pools.windows.num_bytes,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """One forward. Writes pools and slot state."""
        began = time.perf_counter()
        with torch.inference_mode():
            hidden, layer_rows = self._hidden(plan)
            rows = HiddenRows.of(plan) if plan.scored else None
            scores = () if rows is None else self._scores(plan, hidden, rows)
            for mask in plan.masks:
                self.slots.constrain(mask)
            owners = [span.slot for span in plan.spans() if span.sample]
            states = [self.slots.sampler[slot] for slot in owners]
            logits = self._sampled_logits(hidden, rows)
            present = [x for x in states if x is not None]
            sampled = sample(logits, present, is_processed=self.has_processed_logprobs)
        self.slots.last_token[owners] = sampled.token_ids
        wants = any(x is not None for x in sampled.logprobs)
        return StepResult(
            step=plan.step,
            token_ids=array("i", sampled.token_ids),
            logprobs=tuple(sampled.logprobs) if wants else (),
            bad=tuple(sampled.bad),
            layer_rows=layer_rows,
            run_ms=(time.perf_counter() - began) * 1e3,
            scores=scores,
        )

    def forward(self, plan: StepPlan) -> tuple[Tensor, int]:
        """Logits [n, V] of the plan's sampled spans, and the rows run, summed over layers."""
        hidden, layer_rows = self._hidden(plan)
        rows = HiddenRows.of(plan) if plan.scored else None
        return self._sampled_logits(hidden, rows), layer_rows

    def _hidden(self, plan: StepPlan) -> tuple[Tensor, int]:
        """Rows [n, C] that leave the last layer, and the rows run, summed over layers."""
        for reset in plan.resets:
            self._reset(reset)
        for rewind in plan.rewinds:
            self._rewind(rewind)
        for update in plan.pages:
            self.slots.update_pages(update)
        batch = build_batch(plan, self.slots, self.page_size)
        return self.model.forward(batch, self.pools), batch.layer_rows

    def _sampled_logits(self, hidden: Tensor, rows: HiddenRows | None) -> Tensor:
        return self.model.head(hidden if rows is None else hidden[torch.from_numpy(rows.sampled)])

    def _scores(self, plan: StepPlan, hidden: Tensor, rows: HiddenRows) -> tuple[PromptScores, ...]:
        slots = plan.span_data[::SPAN_FIELDS]
        scores = []
        for scored, row in zip(plan.scored, rows.scored, strict=True):
            state = self.slots.sampler[slots[scored.span]]
            assert state is not None
            part = hidden[row : row + len(scored.targets)]
            vocab_size = self.config.vocab_size
            scores.append(score(self.model.head, part, scored.targets, state.wanted, vocab_size))
        return tuple(scores)

    def _reset(self, reset: SlotReset) -> None:
        windows = self.pools.windows
        if reset.source:
            windows.adopt(reset.slot, reset.source, reset.hit)
            self.slots.reset(reset, None)
        else:
            windows.reset(reset.slot)
            self.slots.reset(reset, self._schedule(reset))

    def _rewind(self, rewind: Rewind) -> None:
        self.pools.windows.reset(rewind.slot)
        self.slots.restart(rewind, self._schedule(rewind))

    def _schedule(self, start: SlotReset | Rewind) -> ReplaySchedule | None:
        """None when nothing is replayed."""
        if start.floor == start.hit:
            return None
        return self._schedules.get(start.slope, start.depth)


def allocate(config: ServerConfig, model_config: ModelConfig) -> tuple[SlotTable, KVPools]:
    """Pools and slot table for the memory budget. Raises `ConfigError` when it is too small."""
    layout = KVLayout.from_config(model_config, config.cache, draft_tokens=0, row_align=RING_ALIGN)
    capacity = plan_capacity(
        layout,
        budget_bytes=config.cache.memory_bytes,
        max_running=config.sched.max_running,
        cap_tokens=config.cache.max_total_tokens,
        context_len=config.model.context_len,
        chunk_tokens=config.sched.chunk_tokens,
    )
    dtype = DTYPES[config.cache.kv_dtype]
    pools = KVPools(
        PagePool.allocate(model_config, capacity.num_pages, config.cache.page_size, dtype),
        WindowPool.allocate(model_config, capacity.num_slots, layout.ring_rows, dtype),
    )
    max_pages = -(-config.model.context_len // config.cache.page_size)
    return SlotTable.allocate(capacity.num_slots, max_pages, len(model_config.layers)), pools
