"""Writing new keys and values into pages: a program writes one row of one head."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .overlap import await_previous, overlap_options, overlaps


def kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, dst: Tensor) -> None:
    """See `reference.kv_write.kv_write`. A destination outside the pages is not written, as -1."""
    rows, heads, size = k.shape
    if not (k_pages.is_contiguous() and v_pages.is_contiguous()):
        raise TypeError("a pool must be contiguous")
    if k_pages.dtype != v_pages.dtype or k_pages.shape[2:] != k.shape[1:] or v.shape != k.shape:
        raise TypeError(f"rows {tuple(k.shape)} do not fit a pool {tuple(k_pages.shape)}")
    if k.stride()[1:] != (size, 1) or v.stride()[1:] != (size, 1):
        k, v = k.contiguous(), v.contiguous()
    if rows:
        width = heads * size
        num_rows = k_pages.shape[0] * k_pages.shape[1]
        block = min(1024, triton.next_power_of_2(width))
        _write_kernel[(rows, triton.cdiv(width, block))](
            k, v, k_pages, v_pages, dst, k.stride(0), v.stride(0), width, num_rows,
            BLOCK=block, OVERLAPS=overlaps(), **overlap_options(),
        )  # fmt: skip


@triton.jit
def _write_kernel(
    k, v, k_pages, v_pages, dst, k_row, v_row, width, num_rows, BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    await_previous(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    to = tl.load(dst + row)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    written = (column < width) & (to >= 0) & (to < num_rows)
    key = tl.load(k + row * k_row + column, mask=written)
    value = tl.load(v + row * v_row + column, mask=written)
    place = to * width + column
    tl.store(k_pages + place, key.to(k_pages.dtype.element_ty), mask=written)
    tl.store(v_pages + place, value.to(v_pages.dtype.element_ty), mask=written)
