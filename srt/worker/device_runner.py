"""Executes plans on a device that never waits for the host.

    launch    all of a step is asked for: resets, batch, forward, sample; nothing is read
    result    waits until the step is done, and says what it gave

Between the two other steps may be launched: sampled ids stay in the slots' device state, where rows
of the next step find them. Only `result` synchronises, and a caller that asks for it after the next
launch keeps the device busy. What the host tells of a request's progress (how many tokens there
are, whose turn a mask is) follows from plans alone.
"""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..config import ParallelSection
from ..layers.batch import ForwardBatch
from ..loader.weights import ProgressFn
from ..log import event
from ..messages import SPAN_FIELDS, SlotReset, StepPlan, StepResult, TokenLogprob
from .device_batch import DecodeRows, DeviceSlots, place
from .device_sampler import DeviceSampler, Tokens
from .draws import Draws, lay_out
from .graphs import DecodeGraphs, capture
from .mapping import build_batch
from .profiler import Profiler
from .runner import Runner
from .scoring import HiddenRows, RowLogprobs, Wanted, read_rows, score_rows, to_scores
from .state import SamplerSlot
from .transfer import Moment, download, upload

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PendingStep:
    """What `launch` leaves behind. Tensors are on the host once `ended` is reached."""

    step: int
    layer_rows: tuple[int, ...]
    ids: Tensor
    finite: Tensor
    logprobs: list[RowLogprobs | None]
    scores: list[RowLogprobs]
    began: Moment
    sampling: Moment
    ended: Moment

    def result(self) -> StepResult:
        """Waits for the device."""
        self.ended.reached()
        wants = any(x is not None for x in self.logprobs)
        return StepResult(
            step=self.step,
            token_ids=array("i", self.ids.tolist()),
            logprobs=tuple(map(_told, self.logprobs)) if wants else (),
            bad=tuple(np.flatnonzero(~self.finite.numpy()).tolist()),
            layer_rows=self.layer_rows,
            run_ms=self.ended.since(self.began),
            sample_ms=self.ended.since(self.sampling),
            scores=tuple(map(to_scores, self.scores)),
        )


@dataclass(slots=True, eq=False)
class DeviceRunner:
    """`base` holds the model, the pools and the host's side of the slots."""

    base: Runner
    device: torch.device
    graphs: DecodeGraphs = field(default_factory=lambda: DecodeGraphs({}))
    slots: DeviceSlots = field(init=False)
    _sampler: DeviceSampler = field(init=False)

    def __post_init__(self) -> None:
        self.slots = DeviceSlots.of(self.base.slots, self.device)
        num_slots, vocab_size = len(self.base.slots.sampler), self.base.config.vocab_size
        self._sampler = DeviceSampler(self.device, num_slots, vocab_size)

    @classmethod
    def capture(cls, base: Runner, parallel: ParallelSection, progress: ProgressFn) -> DeviceRunner:
        """With graphs of decode steps as large as `parallel` says."""
        runner = cls(base, torch.device(parallel.device))
        if parallel.graph_batch > 0:
            num_layers = len(base.config.layers)
            with torch.inference_mode():
                runner.graphs = capture(
                    base.engine, runner.slots, num_layers, parallel.graph_batch, progress
                )
        log.info(event("device", {"attention": parallel.attention_backend}))
        return runner

    @property
    def profiler(self) -> Profiler:
        return self.base.profiler

    def launch(self, plan: StepPlan) -> PendingStep:
        """One forward. Writes pools and slot state."""
        part = self.profiler.marks.part
        with torch.inference_mode(), part(f"step {plan.step}"):
            began = Moment(self.device)
            with part("batch"):
                self._begin(plan)
                trim = self.base.engine.trim
                batch = build_batch(plan, self.base.slots, self.base.page_size, trim)
            with part("forward"):
                logits, scores = self._forward(plan, batch)
            sampling = Moment(self.device)
            with part("sample"):
                tokens, logprobs = self._sample(plan, logits)
                ids, finite = download(tokens.ids), download(tokens.finite)
                told = [None if x is None else _downloaded(x) for x in logprobs]
                scores = [_downloaded(x) for x in scores]
            times = (began, sampling, Moment(self.device))
        return PendingStep(plan.step, batch.layer_rows, ids, finite, told, scores, *times)

    def _forward(self, plan: StepPlan, batch: ForwardBatch) -> tuple[Tensor, list[RowLogprobs]]:
        """Logits of the sampled rows, and what is asked of others."""
        rows = HiddenRows.of(plan) if plan.scored else None
        decode = DecodeRows.of(batch) if rows is None else None
        logits = None if decode is None else self.graphs.run(decode)
        if logits is not None:
            return logits, []
        hidden = self.base.engine.forward(place(batch, self.slots))
        if rows is None:
            return self.base.engine.head(hidden), []
        scores = self._scores(plan, hidden, rows)
        (index,) = upload([rows.sampled], self.device)
        return self.base.engine.head(hidden[index]), scores

    def _begin(self, plan: StepPlan) -> None:
        """Resets, rewinds and page updates, on both sides."""
        self.base.apply(plan)
        self.slots.mirror(plan.pages)
        starting = [reset.slot for reset in plan.resets] + [rewind.slot for rewind in plan.rewinds]
        self.slots.begin(starting)
        for reset in plan.resets:
            self._reset(reset)

    def _reset(self, reset: SlotReset) -> None:
        if reset.sampling.has_penalties:
            history, end = reset.history, reset.prompt_len
            self._sampler.begin(reset.slot, history[:end], history[end:])

    def _sample(self, plan: StepPlan, logits: Tensor) -> tuple[Tokens, list[RowLogprobs | None]]:
        owners = [span.slot for span in plan.spans() if span.sample]
        if not owners:
            none = torch.empty(0, dtype=torch.int64, device=self.device)
            return Tokens(none, none.bool()), []
        states = [self._state(slot) for slot in owners]
        for mask in plan.masks:
            self._force(mask.slot, mask.forced)
        draws = lay_out(owners, states, plan.masks, self.base.config.vocab_size)
        tokens = self._sampler.sample(logits, draws)
        told = self._logprobs(logits, tokens, states, draws)
        (slots,) = upload([draws.slots], self.device)
        self.slots.last_token.index_copy_(0, slots, tokens.ids)
        if draws.penalised.size:
            (index,) = upload([draws.penalised], self.device)
            self._sampler.took(draws.slots[draws.penalised], tokens.ids[index])
        for state in states:
            state.num_output += 1
        return tokens, told

    def _state(self, slot: int) -> SamplerSlot:
        state = self.base.slots.sampler[slot]
        assert state is not None
        return state

    def _force(self, slot: int, forced: array[int]) -> None:
        """Ids that a grammar left no choice about were output without a draw."""
        state = self._state(slot)
        state.num_output += len(forced)
        if len(forced) and state.params.has_penalties:
            (ids,) = upload([np.array(forced, dtype=np.int64)], self.device)
            self._sampler.took(np.full(len(forced), slot), ids)

    def _logprobs(
        self, logits: Tensor, tokens: Tokens, states: list[SamplerSlot], draws: Draws
    ) -> list[RowLogprobs | None]:
        """Of the rows that ask for them: one row each, as how many differs."""
        if all(state.top_logprobs is None for state in states):
            return [None] * len(states)
        if self.base.has_processed_logprobs:
            logits = self._sampler.adjusted(logits, draws)
        told: list[RowLogprobs | None] = []
        for row, state in enumerate(states):
            if state.top_logprobs is None:
                told.append(None)
                continue
            scores = logits[row : row + 1].float()
            if self.base.has_processed_logprobs and not state.params.is_greedy:
                scores = scores / state.params.temperature
            told.append(read_rows(scores, tokens.ids[row : row + 1], self._wanted(state)))
        return told

    def _scores(self, plan: StepPlan, hidden: Tensor, rows: HiddenRows) -> list[RowLogprobs]:
        slots = plan.span_data[::SPAN_FIELDS]
        scores = []
        for scored, row in zip(plan.scored, rows.scored, strict=True):
            wanted = self._wanted(self._state(slots[scored.span]))
            part = hidden[row : row + len(scored.targets)]
            (targets,) = upload([np.array(scored.targets, dtype=np.int64)], self.device)
            head, vocab_size = self.base.engine.head, self.base.config.vocab_size
            scores.append(score_rows(head, part, targets, wanted, vocab_size))
        return scores

    def _wanted(self, state: SamplerSlot) -> Wanted:
        (ids,) = upload([state.logprob_ids.numpy()], self.device)
        return Wanted(state.top_logprobs or 0, ids)


def _downloaded(rows: RowLogprobs) -> RowLogprobs:
    return RowLogprobs(
        logprobs=download(rows.logprobs),
        ranks=download(rows.ranks),
        top_ids=download(rows.top_ids),
        top_logprobs=download(rows.top_logprobs),
        chosen=download(rows.chosen),
    )


def _told(rows: RowLogprobs | None) -> TokenLogprob | None:
    if rows is None:
        return None
    return TokenLogprob(
        float(rows.logprobs[0]),
        tuple(rows.top_ids[0].tolist()),
        tuple(rows.top_logprobs[0].tolist()),
        tuple(rows.chosen[0].tolist()),
    )
