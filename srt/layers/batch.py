"""ForwardBatch: all that a layer may know of a step, and the row schedule it runs by.

Rows of one request are contiguous and ascending; requests never interleave (rule B20). Which rows
are alive differs by layer: with a staircase replay the lower window layers run more of the rows
before a hit than the upper ones (B39, B40), so every layer has a `LayerRows`. Layers that see the
same rows share one object; in a step without replay there is exactly one for all layers.

            hit H
    rows    s ........... H .... end
    layer 1 [=============|=====]      enters with all rows, puts out all
    layer 2 [=============|=====]  ->  drops the lowest `slope` rows after its attention
    layer 3      [========|=====]
    top               K/V |=====]      no replayed row leaves the last window layer

A layer takes K/V from every row that enters it and queries only from the rows that leave it. The
last layer is left only by rows whose logits are wanted, so nothing is computed for the others
beyond their K/V (rule B10).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerRows:
    """Rows entering and leaving one layer.

    Shapes: R rows in, O rows out, B runs (one per request with rows here). int64 on the device.
    `paged_runs` and `window_runs` are what `ops.paged_attention` and `ops.window_attention` take.
    """

    keep: Tensor | None  # [O] indexes into the R rows; None: all rows leave
    positions: Tensor  # [R] absolute
    page_dst: Tensor  # [R] page * P + offset, or -1 where nothing is written (replayed rows)
    paged_runs: Tensor  # [B, 4] slot, first q row, q rows, position of the first q row
    window_runs: Tensor  # [B, 7] slot, first k row, k rows, first q row, q rows, position, floor
    longest: int  # positions of the longest request that rows leave of, up to its last row; 0: none

    def drop(self, rows: Tensor) -> Tensor:
        """`rows` [R, ...] without those that do not leave: [O, ...]."""
        return rows if self.keep is None else rows.index_select(0, self.keep)

    @property
    def out_positions(self) -> Tensor:
        return self.drop(self.positions)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step on the device. `layers` has one entry per model layer. The rows that leave the last
    layer are the sampled and the scored ones, in span order.
    """

    token_ids: Tensor  # [T] int64, rows entering layer 0
    layers: tuple[LayerRows, ...]
    page_table: Tensor  # [S, max_pages] int32
    ngrams: Tensor | None = None  # [T, G] ids of positions p, p-1, ..; -1 before the first

    @property
    def layer_rows(self) -> tuple[int, ...]:
        """Rows entering each layer, bottom first: the cost of the step."""
        return tuple(len(x.positions) for x in self.layers)
