"""Plan -> ForwardBatch: the one place where positions meet pages and slots, and where the row
schedule of a step is made.

A step without replay has one `LayerRows` for all layers but the last, which only rows leave whose
logits are wanted. With replay, a layer's rows start at the slot's `entry` and leave from its `exit`
(B39, B40); layers with equal bounds share one object. Floors are per run: the first position that
the layer has taken K/V from since the slot was reset (B7, B18).
"""

from __future__ import annotations

from dataclasses import dataclass

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


def build_batch(plan: StepPlan, slots: SlotTable, page_size: int) -> ForwardBatch:
    """The device tensors of one step. Reads `slots`, changes nothing."""
    spans = Spans.from_plan(plan)
    layers = _layer_rows(spans, _first_wanted(plan, spans), slots, page_size)
    assert len(plan.token_ids) == len(layers[0].positions), "a span starts below its schedule"
    return ForwardBatch(
        token_ids=_token_ids(plan, spans, slots),
        layers=layers,
        page_table=slots.page_tensor,
    )


def _token_ids(plan: StepPlan, spans: Spans, slots: SlotTable) -> Tensor:
    token_ids = np.array(plan.token_ids, dtype=np.int64)
    unknown = token_ids == FROM_DEVICE
    if unknown.any():
        owner = np.repeat(spans.slot, spans.end - spans.start)
        token_ids[unknown] = slots.last_token[owner[unknown]]
    return torch.from_numpy(token_ids)


def _first_wanted(plan: StepPlan, spans: Spans) -> Int64:
    """Per span: the first row whose logits are wanted, as all after it are; `end` for none."""
    first = np.where(spans.sample == 1, spans.end - 1, spans.end)
    for scored in plan.scored:
        assert scored.first >= spans.computed[scored.span], "a replayed row is never scored (B27)"
        first[scored.span] = scored.first
    return first


def _layer_rows(
    spans: Spans, first_wanted: Int64, slots: SlotTable, page_size: int
) -> tuple[LayerRows, ...]:
    num_layers = slots.entry.shape[1]
    has_replay = bool((spans.start < spans.computed).any())
    made: dict[bytes, LayerRows] = {}
    rows = []
    for layer in range(num_layers):
        if has_replay:
            entry = np.clip(slots.entry[spans.slot, layer], spans.start, spans.end)
            leave = np.clip(slots.exit[spans.slot, layer], entry, spans.end)
            floor = np.maximum(slots.floor[spans.slot], slots.entry[spans.slot, layer])
        else:
            entry = leave = spans.start
            floor = slots.floor[spans.slot]
        if layer == num_layers - 1:
            leave = first_wanted
        key = entry.tobytes() + leave.tobytes() + floor.tobytes()
        if key not in made:
            made[key] = _rows_between(spans, Bounds(entry, leave, floor), slots, page_size)
        rows.append(made[key])
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per span: first position entering a layer, first leaving it, lowest position in its ring."""

    entry: Int64
    leave: Int64
    floor: Int64


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
    )


def _ranges(starts: Int64, lengths: Int64) -> Int64:
    """`starts[0] .. starts[0]+lengths[0]-1, starts[1] .. ` in one array."""
    shift = np.repeat(starts - _first_rows(lengths), lengths)
    return np.arange(len(shift), dtype=np.int64) + shift


def _first_rows(lengths: Int64) -> Int64:
    return np.cumsum(lengths) - lengths
