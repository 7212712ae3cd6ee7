"""Matrix products of activations with weights.

Invariant of everything here: a row of the result depends on that row of x alone, bit for bit, never
on how many rows share the call or where in it the row stands. A prefix hit, a chunk boundary or a
batch neighbour changes the number of rows; with this invariant it cannot change a result.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .quant import BLOCK, GROUP, Q8Weight, quantize_rows

TILE_ROWS = 32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`.

    Shapes: x `[T, K]`, weight `[N, K]`, bias `[N]`; returns `[T, N]`. Products are summed in
    float32, or in float64 for float64 input. Every library call has exactly `TILE_ROWS` rows
    (padding with zeros), because BLAS picks its kernel, and with it the order of the sum, by the
    shape: one row would even take a different routine.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    result = x.new_empty(x.shape[0], weight.shape[0], dtype=wide)
    wide_weight = weight.to(wide)
    tile = x.new_zeros(TILE_ROWS, x.shape[1], dtype=wide)
    for start in range(0, x.shape[0], TILE_ROWS):
        rows = x[start : start + TILE_ROWS]
        tile[: rows.shape[0]] = rows
        result[start : start + TILE_ROWS] = F.linear(tile, wide_weight)[: rows.shape[0]]
    if bias is not None:
        result += bias
    return result.to(x.dtype)


def linear_q8(
    x: Tensor,
    w: Q8Weight,
    bias: Tensor | None = None,
    out_start: int = 0,
    out_end: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`quantised(x) @ w.T + bias` for the output features `[out_start, out_end)`.

    Shapes: x float32 `[T, K]`, rows may be strided; bias float32 of the selected features; returns
    float32 `[T, out_end - out_start]`. Writes `out` when given. Dots within a group of 32 are exact
    integers, rounded to float32; groups are added from first to last in float32.
    Raises `ValueError` when sizes disagree or the slice does not start and end on multiples of 16
    (or at N).
    """
    start, end = check_linear_q8(x, w, out_start, out_end)
    quants, row_scales = quantize_rows(x)
    blocks = slice(start // BLOCK, -(-end // BLOCK))
    weights = w.data[blocks].transpose(1, 2).reshape(-1, w.in_features // GROUP, GROUP).double()
    scales = w.scales[blocks].transpose(1, 2).reshape(-1, w.in_features // GROUP).float()
    total = x.new_zeros(x.shape[0], weights.shape[0])
    for group in range(w.in_features // GROUP):
        dots = (quants[:, group].double() @ weights[:, group].T).float()
        total += dots * row_scales[:, group, None] * scales[:, group]
    result = total[:, : end - start]
    if bias is not None:
        result = result + bias
    return result.contiguous() if out is None else out.copy_(result)


def check_linear_q8(x: Tensor, w: Q8Weight, out_start: int, out_end: int | None) -> tuple[int, int]:
    """Return the slice of output features. Raises `ValueError` as `linear_q8` does."""
    end = w.out_features if out_end is None else out_end
    if x.dim() != 2 or x.shape[1] != w.in_features:
        raise ValueError(f"x {tuple(x.shape)} does not fit a weight with {w.in_features} inputs")
    if out_start % BLOCK or (end % BLOCK and end != w.out_features):
        raise ValueError(f"output slice [{out_start}, {end}) must lie on multiples of {BLOCK}")
    if not 0 <= out_start <= end <= w.out_features:
        raise ValueError(f"output slice [{out_start}, {end}) exceeds {w.out_features} features")
    return out_start, end
