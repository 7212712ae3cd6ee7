"""A step's batch on the device: what `mapping.py` made on the host goes up in one copy.

A decode row planned ahead has no id yet; it takes the slot's last sampled one, which never left the
device. Layers that share their rows on the host share them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..layers.batch import ForwardBatch, LayerRows
from ..messages import FROM_DEVICE, PageUpdate
from .state import Int64, SlotTable
from .transfer import upload

FIELDS = 15  # int64 of a row of a decode batch: see `DecodeRows`


@dataclass(slots=True, eq=False)
class DeviceSlots:
    """Shapes: S slots. `page_table` mirrors the host's; the host never reads `last_token`."""

    host: SlotTable
    page_table: Tensor  # [S, max_pages] int32
    last_token: Tensor  # [S] int64
    recent: Tensor  # [S, G-1] int64, ids before the next row; the host's are those of the reset

    @classmethod
    def of(cls, host: SlotTable, device: torch.device) -> DeviceSlots:
        """From now on `host` has no last tokens: `mapping` leaves `FROM_DEVICE` where it is."""
        host.last_token[:] = FROM_DEVICE
        table = torch.zeros(host.page_table.shape, dtype=torch.int32, device=device)
        last = torch.zeros(len(host.last_token), dtype=torch.int64, device=device)
        recent = torch.from_numpy(host.recent).to(device)
        return cls(host, table, last, recent)

    def changed(self, updates: tuple[PageUpdate, ...]) -> tuple[Int64, Int64]:
        """Places in the flat table that `updates`, carried out on the host, have changed, and what
        is there now. A place that was changed twice has the same value twice."""
        width = self.page_table.shape[1]
        parts = [x.slot * width + x.first + np.arange(len(x.pages)) for x in updates]
        places = np.concatenate(parts).astype(np.int64)
        return places, self.host.page_table.reshape(-1)[places].astype(np.int64)

    def mirror(self, updates: tuple[PageUpdate, ...]) -> None:
        if updates:
            places, pages = upload(list(self.changed(updates)), self.page_table.device)
            self.page_table.view(-1).index_copy_(0, places, pages.int())

    def begin(self, slots: Sequence[int]) -> None:
        """Requests start in `slots`: what is before their first rows, the host knows."""
        if slots and self.recent.shape[1]:
            places = np.array(slots, dtype=np.int64)
            index, ids = upload([places, self.host.recent[places]], self.recent.device)
            self.recent.index_copy_(0, index, ids)

    def known(self, token_ids: Tensor, owners: Tensor) -> Tensor:
        """`token_ids` [T] of rows of the slots `owners` [T], with those filled in that are here."""
        return torch.where(token_ids < 0, self.last_token[owners], token_ids)


def place(batch: ForwardBatch, slots: DeviceSlots) -> ForwardBatch:
    """The batch with all of its tensors on the device. Writes `slots.recent`, where a model reads
    n-grams: the last ids of each request, for its next rows."""
    distinct = list({id(rows): rows for rows in batch.layers}.values())
    runs = batch.layers[0].window_runs.numpy()
    arrays = [batch.token_ids.numpy(), _owners(batch.layers[0]), runs]
    for rows in distinct:
        kept = np.empty(0, dtype=np.int64) if rows.keep is None else rows.keep.numpy()
        arrays += [kept, *(x.numpy() for x in _tensors(rows))]
    token_ids, owners, spans, *rest = upload(arrays, slots.page_table.device)
    made: dict[int, LayerRows] = {}
    for index, rows in enumerate(distinct):
        keep, positions, dst, paged, window = rest[index * 5 : index * 5 + 5]
        there = None if rows.keep is None else keep
        made[id(rows)] = LayerRows(there, positions, dst, paged, window, rows.longest)
    token_ids = slots.known(token_ids, owners)
    return ForwardBatch(
        token_ids=token_ids,
        layers=tuple(made[id(rows)] for rows in batch.layers),
        page_table=slots.page_table,
        ngrams=None if batch.ngrams is None else _ngrams(token_ids, owners, spans, slots.recent),
    )


def _ngrams(token_ids: Tensor, owners: Tensor, spans: Tensor, recent: Tensor) -> Tensor:
    """Ids of positions p, p-1, .. [T, G] of each row: from its span, or from before it. `spans`:
    window runs. Writes `recent`."""
    size, row = recent.shape[1], torch.arange(len(token_ids), device=token_ids.device)
    first, lengths = spans[:, 1], spans[:, 2]
    inside = row - torch.repeat_interleave(first, lengths, output_size=len(token_ids))
    columns = []
    for back in range(size + 1):
        older = recent[owners, (back - 1 - inside).clamp(0, size - 1)]
        columns.append(torch.where(inside >= back, token_ids[(row - back).clamp(min=0)], older))
    ngrams = torch.stack(columns, 1)
    recent.index_copy_(0, spans[:, 0], ngrams[first + lengths - 1, :-1])
    return ngrams


def _tensors(rows: LayerRows) -> tuple[Tensor, ...]:
    return rows.positions, rows.page_dst, rows.paged_runs, rows.window_runs


def _owners(rows: LayerRows) -> Int64:
    """Slot of each row that enters."""
    runs = rows.window_runs.numpy()
    return np.repeat(runs[:, 0], runs[:, 2])


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """A batch of one new row for each request, all of them sampled, all layers alike: the step that
    a graph can be captured of. Columns of int64: id, slot, position, page_dst | paged run (4) |
    window run (7), one after the other, so that a padded batch is one copy too."""

    columns: tuple[Int64, ...]

    @classmethod
    def of(cls, batch: ForwardBatch) -> DecodeRows | None:
        """None for any other batch."""
        rows = batch.layers[0]
        count = len(batch.token_ids)
        is_one = all(x is rows for x in batch.layers) and rows.keep is None
        if not is_one or not count or len(rows.window_runs) != count:
            return None
        columns = (batch.token_ids.numpy(), _owners(rows), *(x.numpy() for x in _tensors(rows)))
        return cls(columns)

    @property
    def count(self) -> int:
        return len(self.columns[0])

    def padded(self, size: int) -> list[Int64]:
        """With rows of slot 0 that see themselves alone and write nothing but its rings."""
        ids, owners, positions, dst, paged, window = self.columns
        spare = size - self.count
        if not spare:
            return list(self.columns)
        row = np.arange(self.count, size)
        zero, one = np.zeros(spare, dtype=np.int64), np.ones(spare, dtype=np.int64)
        more_paged = np.stack((zero, row, one, zero), axis=1)
        more_window = np.stack((zero, row, one, row, one, zero, zero), axis=1)
        return [
            np.concatenate((ids, zero)),
            np.concatenate((owners, zero)),
            np.concatenate((positions, zero)),
            np.concatenate((dst, -one)),
            np.concatenate((paged, more_paged)),
            np.concatenate((window, more_window)),
        ]


def decode_batch(tensors: list[Tensor], num_layers: int, slots: DeviceSlots) -> ForwardBatch:
    """The batch of `DecodeRows.padded` arrays that were uploaded."""
    ids, owners, positions, dst, paged, window = tensors
    rows = LayerRows(None, positions, dst, paged, window, 0)  # read by none with a graph
    return ForwardBatch(slots.known(ids, owners), (rows,) * num_layers, slots.page_table)
