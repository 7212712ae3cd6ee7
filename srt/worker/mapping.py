"""Plan -> ForwardBatch: the one place where positions meet pages and slots, and where the row
schedule of a step is made.

A step without replay has one `LayerRows` for all layers but the last, which only rows leave whose
logits are wanted. With replay, a layer's rows start at the slot's `entry` and leave from its `exit`
(B39, B40); a trimmed prompt is the same with the prompt's end in place of the hit (B17). Layers
with equal bounds share one object. Floors are per run: the first position that the layer has taken
K/V from since the slot was reset (B7, B18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..layers.batch import ForwardBatch, LayerRows
from ..messages import FROM_DEVICE, SPAN_FIELDS, StepPlan
from .state import Int64, SlotTable


@dataclass(frozen=True, slots=True)
class Spans:
    """Columns of a plan's spans, int64 [B] each."""

    slot: Int64
    start: Int64
    computed: Int64
    end: Int64
    sample: Int64

    @classmethod
    def from_plan(cls, plan: StepPlan) -> Spans:
        table = np.array(plan.span_data, dtype=np.int64).reshape(-1, SPAN_FIELDS)
        return cls(*np.ascontiguousarray(table.T))


@dataclass(frozen=True, slots=True)
class Trim:
    """From `layer` on only the last `window` rows of a prompt are run: that layer makes K/V of all
    rows and lets the last ones leave (B17). `clips`: rows that were left out are not seen in the
    window of `layer` itself either, though it has them. `is_per_chunk`: the last rows of each chunk
    instead of the prompt's.
    """

    layer: int
    window: int
    clips: bool = True
    is_per_chunk: bool = False


def build_batch(
    plan: StepPlan, slots: SlotTable, page_size: int, trim: Trim | None = None
) -> ForwardBatch:
    """The device tensors of one step. Reads `slots`, changes nothing."""
    spans = Spans.from_plan(plan)
    layers = _layer_rows(spans, _first_wanted(plan, spans), slots, page_size, trim)
    assert len(plan.token_ids) == len(layers[0].positions), "a span starts below its schedule"
    token_ids = _token_ids(plan, spans, slots)
    return ForwardBatch(
        token_ids=torch.from_numpy(token_ids),
        layers=layers,
        page_table=slots.page_tensor,
        ngrams=_ngrams(token_ids, spans, slots) if slots.recent.shape[1] else None,
    )


def kept_ends(plan: StepPlan, counts: Sequence[int]) -> Int64:
    """Per span, where the rows end that stay: those of its known tokens, and of the drafts that
    were accepted. `counts`: tokens that each sampled span has become."""
    spans = Spans.from_plan(plan)
    ends = spans.end - spans.sample
    ends[spans.sample > 0] += np.array(counts, dtype=np.int64)
    return ends


def remember(plan: StepPlan, batch: ForwardBatch, slots: SlotTable, ends: Int64) -> None:
    """Keep the last ids that were run, for the n-grams of the next rows. `ends`: per span, where
    the rows end that stay; those of rejected drafts do not. Writes `slots.recent`."""
    if batch.ngrams is None:
        return
    spans = Spans.from_plan(plan)
    last = np.cumsum(spans.end - spans.start) - 1 - (spans.end - ends)
    slots.recent[spans.slot] = batch.ngrams.numpy()[last, :-1]


def _ngrams(token_ids: Int64, spans: Spans, slots: SlotTable) -> Tensor:
    """Ids of positions p, p-1, .. of each row: from its span, or from before it."""
    lengths = spans.end - spans.start
    inside = _ranges(np.zeros_like(lengths), lengths)
    owner = np.repeat(spans.slot, lengths)
    size = slots.recent.shape[1]
    grams = np.empty((len(token_ids), size + 1), dtype=np.int64)
    row = np.arange(len(token_ids))
    for back in range(size + 1):
        older = slots.recent[owner, np.clip(back - 1 - inside, 0, size - 1)]
        grams[:, back] = np.where(inside >= back, token_ids[np.maximum(row - back, 0)], older)
    return torch.from_numpy(grams)


def _token_ids(plan: StepPlan, spans: Spans, slots: SlotTable) -> Int64:
    token_ids = np.array(plan.token_ids, dtype=np.int64)
    unknown = token_ids == FROM_DEVICE
    if unknown.any():
        owner = np.repeat(spans.slot, spans.end - spans.start)
        token_ids[unknown] = slots.last_token[owner[unknown]]
    return token_ids


def _first_wanted(plan: StepPlan, spans: Spans) -> Int64:
    """Per span: the first row whose logits are wanted, as all after it are; `end` for none."""
    first = spans.end - spans.sample
    for scored in plan.scored:
        assert scored.first >= spans.computed[scored.span], "a replayed row is never scored (B27)"
        first[scored.span] = scored.first
    return first


def _layer_rows(
    spans: Spans, first_wanted: Int64, slots: SlotTable, page_size: int, trim: Trim | None
) -> tuple[LayerRows, ...]:
    num_layers = slots.entry.shape[1]
    is_settled = bool((spans.start >= slots.settled[spans.slot]).all())
    cut = _cut(spans, slots, trim)
    made: dict[bytes, LayerRows] = {}
    rows = []
    for layer in range(num_layers):
        if is_settled:
            bounds = Bounds(spans.start, spans.start, slots.floor[spans.slot])
        else:
            bounds = _bounds(spans, slots, layer, trim, cut)
        if layer == num_layers - 1:
            bounds = replace(bounds, leave=np.maximum(first_wanted, bounds.entry))
        key = bounds.key
        if key not in made:
            made[key] = _rows_between(spans, bounds, slots, page_size)
        rows.append(made[key])
    return tuple(rows)


def _cut(spans: Spans, slots: SlotTable, trim: Trim | None) -> Int64:
    """Per span: the first row that layers above the trimmed one run; 0 for all rows."""
    if trim is None:
        return np.zeros_like(spans.start)
    end = slots.trim_end[spans.slot]
    if trim.is_per_chunk:
        end = np.where(spans.start < end, spans.end, 0)
    return np.maximum(end - trim.window, 0)


def _bounds(spans: Spans, slots: SlotTable, layer: int, trim: Trim | None, cut: Int64) -> Bounds:
    """Of a step in which some request replays, or is trimmed."""
    entry, leave = slots.entry[spans.slot, layer], slots.exit[spans.slot, layer]
    floor = np.maximum(slots.floor[spans.slot], entry)
    if trim is not None:
        if layer > trim.layer:
            entry = np.maximum(entry, cut)
        if layer >= trim.layer:
            leave = np.maximum(leave, cut)
        if layer >= trim.layer + (not trim.clips):
            floor = np.maximum(floor, cut)
    entry = np.clip(entry, spans.start, spans.end)
    return Bounds(entry, np.clip(leave, entry, spans.end), floor)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per span: first position entering a layer, first leaving it, lowest position in its ring."""

    entry: Int64
    leave: Int64
    floor: Int64

    @property
    def key(self) -> bytes:
        return self.entry.tobytes() + self.leave.tobytes() + self.floor.tobytes()


def _rows_between(spans: Spans, bounds: Bounds, slots: SlotTable, page_size: int) -> LayerRows:
    k_rows, q_rows = spans.end - bounds.entry, spans.end - bounds.leave
    positions = _ranges(bounds.entry, k_rows)
    owner = np.repeat(np.arange(len(k_rows)), k_rows)
    page = slots.page_table[spans.slot[owner], positions // page_size].astype(np.int64)
    dst = np.where(positions >= spans.computed[owner], page * page_size + positions % page_size, -1)
    k_first, q_first = _first_rows(k_rows), _first_rows(q_rows)
    paged = np.stack((spans.slot, q_first, q_rows, bounds.leave), axis=1)
    window = np.stack(
        (spans.slot, k_first, k_rows, q_first, q_rows, bounds.entry, bounds.floor), axis=1
    )
    keep = None
    if not np.array_equal(bounds.entry, bounds.leave):
        keep = torch.from_numpy(_ranges(k_first + k_rows - q_rows, q_rows))
    return LayerRows(
        keep=keep,
        positions=torch.from_numpy(positions),
        page_dst=torch.from_numpy(dst),
        paged_runs=torch.from_numpy(paged[q_rows > 0]),
        window_runs=torch.from_numpy(window[k_rows > 0]),
        longest=int(spans.end[q_rows > 0].max(initial=0)),
    )


def _ranges(starts: Int64, lengths: Int64) -> Int64:
    """`starts[0] .. starts[0]+lengths[0]-1, starts[1] .. ` in one array."""
    shift = np.repeat(starts - _first_rows(lengths), lengths)
    return np.arange(len(shift), dtype=np.int64) + shift


def _first_rows(lengths: Int64) -> Int64:
    return np.cumsum(lengths) - lengths
