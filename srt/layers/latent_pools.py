"""LatentPools: the cached bytes of a model with compressed entries. Allocated once, never grown.

    entries, keys  per kv source  [N, P/m, row bytes]    of pages; page 0 is the sink
    windows  backbone, then draft [L, S, C, row bytes]   position q of a slot in ring row q % C
    tags                          [L, S, C]              absolute position held, -1 empty (S2, S5)
    tails          per ratio-2    [S, A, 2, D] float32   value and gate of the last positions, q % A

A page is P positions of every source: entry j of a source with ratio m lies in the page of position
j*m. Entries are written for new rows only (B6); a ring is emptied by `reset` only (S6). A tail need
not be emptied: a pair is made from rows of one request, and the first row after a reset is even or
replayed (B21).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels.ops import Pages, Rings

from ..model_config import ModelConfig
from .batch import ForwardBatch, LayerRows
from .pools import CPU, zeros
from .row_formats import PackedRows, RowFormats


@dataclass(frozen=True, slots=True)
class EntryPool:
    """Of one kv source."""

    ratio: int
    entries: Tensor
    keys: Tensor

    @property
    def per_page(self) -> int:
        return self.entries.shape[1]

    def read(self, rows: Tensor, table: Tensor, count: int) -> Tensor:
        """The first `count` packed rows of a request; `rows` is `entries` or `keys`, `table` its
        page ids."""
        pages = table[: -(-count // self.per_page)].long()
        return rows[pages].flatten(0, 1)[:count]


@dataclass(frozen=True, slots=True)
class LatentPools:
    formats: RowFormats
    sources: dict[int, EntryPool]
    windows: Tensor
    tags: Tensor
    tails: dict[int, Tensor]

    @classmethod
    def allocate(  # noqa: PLR0913 - the sizes of a pool
        cls,
        config: ModelConfig,
        formats: RowFormats,
        num_pages: int,
        page_size: int,
        num_slots: int,
        ring_rows: int,
        tail_rows: int,
        draft_rings: int,
        device: torch.device = CPU,
    ) -> LatentPools:
        """`tail_rows`: a power of two, at least 2 + draft tokens. `draft_rings`: of the draft head,
        0 when it is not served."""
        latent = config.latent
        assert latent is not None
        sources, tails = {}, {}
        for layer in latent.kv_sources:
            ratio = latent.ratios[layer]
            shape = (num_pages, page_size // ratio)
            sources[layer] = EntryPool(
                ratio,
                zeros((*shape, formats.entry.row_bytes), torch.uint8, device),
                zeros((*shape, formats.key.row_bytes), torch.uint8, device),
            )
            if ratio == 2:
                size = (num_slots, tail_rows, 2, config.head_dim)
                tails[layer] = zeros(size, torch.float32, device)
        rings = (len(config.layers) + draft_rings, num_slots, ring_rows)
        windows = zeros((*rings, formats.window.row_bytes), torch.uint8, device)
        return cls(formats, sources, windows, torch.full(rings, -1, device=device), tails)

    def reset(self, slot: int) -> None:
        """Forget every position held for `slot`."""
        self.tags[:, slot] = -1

    def adopt(self, slot: int, source: int, upto: int) -> None:
        """Make the rings of `slot` those of `source`, up to position `upto`: what is held of `upto`
        and above is forgotten (B24). `upto` is even, so no pair is open there (B21)."""
        if slot != source:
            self.windows[:, slot] = self.windows[:, source]
        held = self.tags[:, source]
        self.tags[:, slot] = torch.where(held < upto, held, -1)

    @property
    def num_pages(self) -> int:
        return next(iter(self.sources.values())).entries.shape[0]

    @property
    def num_bytes(self) -> int:
        pages = sum(x.entries.nbytes + x.keys.nbytes for x in self.sources.values())
        return pages + self.windows.nbytes + sum(x.nbytes for x in self.tails.values())

    def entry_pages(self, source: int, batch: ForwardBatch, rows: LayerRows) -> Pages:
        """The entries of a kv source, as the query rows of a layer see them."""
        return self._pages(self.sources[source], self.formats.entry, batch, rows)

    def key_pages(self, source: int, batch: ForwardBatch, rows: LayerRows) -> Pages:
        """The same of its index keys."""
        return self._pages(self.sources[source], self.formats.key, batch, rows)

    def _pages(
        self, pool: EntryPool, form: PackedRows, batch: ForwardBatch, rows: LayerRows
    ) -> Pages:
        packed = pool.entries if form is self.formats.entry else pool.keys
        longest, table = rows.longest // pool.ratio, batch.page_table
        return Pages(packed, form.kind, form.size, pool.ratio, table, rows.paged_runs, longest)

    def rings(self, layer: int, runs: Tensor, window: int) -> Rings:
        """The rings of a layer, as the runs of a step read and fill them."""
        form = self.formats.window
        return Rings(self.windows[layer], self.tags[layer], form.kind, form.size, runs, window)

    def window_rows(self, layer: int, slot: int, start: int, end: int) -> Tensor:
        """Packed rows of positions [start, end). Raises: RuntimeError when the ring does not hold
        one of them (S5)."""
        positions = torch.arange(start, max(start, end), device=self.tags.device)
        place = positions % self.tags.shape[2]
        held = self.tags[layer, slot, place]
        if not torch.equal(held, positions):
            missing = int(positions[held != positions][0])
            raise RuntimeError(f"slot {slot} has no window row of position {missing}")
        return self.windows[layer, slot, place]

    def keep_window(self, layer: int, slot: int, start: int, rows: Tensor) -> None:
        """Commit packed rows of positions from `start` on; the last C of them stay (S4)."""
        capacity = self.tags.shape[2]
        first = max(0, len(rows) - capacity)
        positions = torch.arange(start + first, start + len(rows), device=self.tags.device)
        place = positions % capacity
        self.windows[layer, slot, place] = rows[first:]
        self.tags[layer, slot, place] = positions

    def context_start(self, layer: int, slot: int, end: int, window: int) -> int:
        """Lowest position from which a ring holds every row up to `end`, at most `window` of them:
        after a hit the rows before the replay have no context (B23)."""
        positions = torch.arange(max(0, end - window), end, device=self.tags.device)
        held = self.tags[layer, slot, positions % self.tags.shape[2]] == positions
        missing = torch.nonzero(~held)[:, 0]
        return end - len(positions) + (int(missing[-1]) + 1 if len(missing) else 0)
