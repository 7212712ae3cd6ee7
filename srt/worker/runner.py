"""Executes plans: resets and page updates, batch, forward, sample. Decides nothing.

All workers of a replica execute the same plans in the same order. A step allocates no large
buffer: pools are made here once, and freed heap memory is kept by the process (`heap.py`).
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..cache.layout import KVLayout, plan_capacity
from ..cache.replay import ReplaySchedule, ScheduleCache
from ..config import ServerConfig
from ..layers.batch import ForwardBatch
from ..lifecycle import Ready
from ..loader.weights import ProgressFn
from ..messages import SPAN_FIELDS, Rewind, SlotReset, StepPlan, StepResult
from ..model_config import ModelConfig
from ..models.dspark import Anchor
from ..scores import PromptScores
from .dense_engine import load_dense
from .drafter import Drafter
from .engine import Engine, LoadRequest
from .latent_engine import load_latent
from .mapping import Spans, build_batch, kept_ends, remember
from .profiler import Profiler
from .sampler import Sampled, sample
from .scoring import HiddenRows, score
from .state import Int64, SlotTable

RING_ALIGN = 1  # the CPU kernels take rings of any length


@dataclass(slots=True, eq=False)
class Runner:
    config: ModelConfig
    engine: Engine
    slots: SlotTable
    page_size: int
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
        layout = KVLayout.from_config(
            model_config, config.cache, config.sched.draft_tokens, RING_ALIGN
        )
        capacity = plan_capacity(
            layout,
            budget_bytes=config.cache.memory_bytes,
            max_running=config.sched.max_running,
            cap_tokens=config.cache.max_total_tokens,
            context_len=config.model.context_len,
            chunk_tokens=config.sched.chunk_tokens,
        )
        request = LoadRequest(config, model_config, path, capacity, layout.ring_rows, progress)
        latent = model_config.latent
        engine = load_dense(request) if latent is None else load_latent(request)
        max_pages = -(-config.model.context_len // config.cache.page_size)
        slots = SlotTable.allocate(
            capacity.num_slots,
            max_pages,
            len(model_config.layers),
            latent.lookback if latent else 0,
            trims=engine.trim is not None,
        )
        is_processed = config.model.logprobs_mode == "processed_logprobs"
        return cls(model_config, engine, slots, config.cache.page_size, is_processed)

    def capacity(self, rank: int) -> Ready:
        """What the scheduler may hand out; page 0 and slot 0 are sinks and counted here."""
        self.profiler.rank = rank
        return Ready(
            role="worker",
            rank=rank,
            num_pages=self.engine.pools.num_pages,
            num_slots=self.slots.page_table.shape[0],
            weight_bytes=self.engine.weight_bytes,
            kv_bytes=self.engine.pools.num_bytes,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """One forward. Writes pools and slot state."""
        began = time.perf_counter()
        drafts: tuple[array[int], ...] | None = None
        part = self.profiler.marks.part
        with torch.inference_mode(), part(f"step {plan.step}"):
            with part("forward"):
                hidden, batch = self._hidden(plan)
            rows = HiddenRows.of(plan) if plan.scored else None
            scores = () if rows is None else self._scores(plan, hidden, rows)
            for mask in plan.masks:
                self.slots.constrain(mask)
            logits = self._sampled_logits(hidden, rows)
            sampling = time.perf_counter()
            with part("sample"):
                sampled = self._sample(plan, logits)
            sample_s = time.perf_counter() - sampling
            ends = kept_ends(plan, sampled.counts)
            remember(plan, batch, self.slots, ends)
            if self.engine.drafter is not None:
                drafts = self._draft(plan, self.engine.drafter, sampled, ends)
        wants = any(x is not None for x in sampled.logprobs)
        result = StepResult(
            step=plan.step,
            token_ids=array("i", sampled.token_ids),
            logprobs=tuple(sampled.logprobs) if wants else (),
            bad=tuple(sampled.bad),
            layer_rows=batch.layer_rows,
            run_ms=(time.perf_counter() - began) * 1e3,
            sample_ms=sample_s * 1e3,
            scores=scores,
        )
        if drafts is None:
            return result
        counts = array("i", sampled.counts)
        ids, draft_counts, sure_counts = drafts
        return replace(
            result, counts=counts, drafts=ids, draft_counts=draft_counts, sure_counts=sure_counts
        )

    def _sample(self, plan: StepPlan, logits: Tensor) -> Sampled:
        """Tokens of the plan's sampled spans, with the drafts that were fed to verify."""
        owners, fed, row = [], [], 0
        for span in plan.spans():
            row += span.end - span.start
            if span.sample:
                owners.append(span.slot)
                fed.append(plan.token_ids[row - span.sample + 1 : row])
        states = [x for x in (self.slots.sampler[slot] for slot in owners) if x is not None]
        sampled = sample(logits, states, fed, is_processed=self.has_processed_logprobs)
        ends = np.cumsum(sampled.counts, dtype=np.int64)
        self.slots.last_token[owners] = [sampled.token_ids[end - 1] for end in ends]
        return sampled

    def _draft(
        self, plan: StepPlan, drafter: Drafter, sampled: Sampled, ends: Int64
    ) -> tuple[array[int], ...]:
        """Drafts of the sampled spans in a row, how many of each, and how many of those are sure.
        One that has ended, or whose rows are not finite, has none."""
        spans = list(plan.spans())
        drafter.keep({span.slot: int(end) for span, end in zip(spans, ends, strict=True)})
        owners = [
            (state, int(end), span.slot)
            for span, end in zip(spans, ends, strict=True)
            if span.sample and (state := self.slots.sampler[span.slot]) is not None
        ]
        anchors, asking = [], []
        for index, (state, end, slot) in enumerate(owners):
            state.drafted = None
            token = int(self.slots.last_token[slot])
            if index not in sampled.bad and not state.has_ended(token):
                anchors.append(Anchor(slot, end, token))
                asking.append(state)
        drafter.propose(anchors, asking)
        made = [state.drafted for state, _, _ in owners]
        ids = array("i", [x for drafted in made if drafted for x in drafted.ids])
        counts = array("i", [len(drafted.ids) if drafted else 0 for drafted in made])
        return ids, counts, array("i", [drafted.num_sure if drafted else 0 for drafted in made])

    def forward(self, plan: StepPlan) -> tuple[Tensor, tuple[int, ...]]:
        """Logits [n, V] of the plan's sampled spans, and the rows that entered each layer."""
        hidden, batch = self._hidden(plan)
        remember(plan, batch, self.slots, Spans.from_plan(plan).end)
        rows = HiddenRows.of(plan) if plan.scored else None
        return self._sampled_logits(hidden, rows), batch.layer_rows

    def _hidden(self, plan: StepPlan) -> tuple[Tensor, ForwardBatch]:
        """Rows [n, C] that leave the last layer, and the batch that was run."""
        self.apply(plan)
        batch = build_batch(plan, self.slots, self.page_size, self.engine.trim)
        return self.engine.forward(batch), batch

    def apply(self, plan: StepPlan) -> None:
        """What a plan changes before its rows run. Writes pools and slot state."""
        for reset in plan.resets:
            self._reset(reset)
        for rewind in plan.rewinds:
            self._rewind(rewind)
        for update in plan.pages:
            self.slots.update_pages(update)

    def _sampled_logits(self, hidden: Tensor, rows: HiddenRows | None) -> Tensor:
        return self.engine.head(hidden if rows is None else hidden[torch.from_numpy(rows.sampled)])

    def _scores(self, plan: StepPlan, hidden: Tensor, rows: HiddenRows) -> tuple[PromptScores, ...]:
        slots = plan.span_data[::SPAN_FIELDS]
        scores = []
        for scored, row in zip(plan.scored, rows.scored, strict=True):
            state = self.slots.sampler[slots[scored.span]]
            assert state is not None
            part = hidden[row : row + len(scored.targets)]
            vocab_size = self.config.vocab_size
            scores.append(score(self.engine.head, part, scored.targets, state.wanted, vocab_size))
        return tuple(scores)

    def _reset(self, reset: SlotReset) -> None:
        pools = self.engine.pools
        if reset.source:
            pools.adopt(reset.slot, reset.source, reset.hit)
            self.slots.reset(reset, None)
        else:
            pools.reset(reset.slot)
            self.slots.reset(reset, self._schedule(reset))

    def _rewind(self, rewind: Rewind) -> None:
        self.engine.pools.reset(rewind.slot)
        self.slots.restart(rewind, self._schedule(rewind))

    def _schedule(self, start: SlotReset | Rewind) -> ReplaySchedule | None:
        """None when nothing is replayed."""
        if start.floor == start.hit:
            return None
        return self._schedules.get(start.slope, start.depth)
