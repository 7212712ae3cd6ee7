"""`reference/window_attention.py` on the C++ tiles of attention.cpp."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from ..reference import window_attention as reference
from . import lib
from .attention_args import (
    FAULT_ENTRIES,
    check_heads,
    fault_error,
    int_rows,
    pool_is_bf16,
    row_stride,
)

_window_attention = lib.function("treadle_window_attention", (lib.ADDRESS, lib.FLOAT))

RUN_FIELDS = 7


def window_attention(  # noqa: PLR0913 - one tensor of the pool each
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ring_k: Tensor,
    ring_v: Tensor,
    tags: Tensor,
    runs: Tensor,
    window: int,
    scale: float,
) -> Tensor:
    """See the reference, where float64 goes. float32 otherwise, the pool float32 or bfloat16; head
    size a multiple of 16 up to 512. A row is the same bits whatever runs beside it, on any number
    of threads.
    """
    if q.dtype is torch.float64:
        return reference.window_attention(q, k, v, ring_k, ring_v, tags, runs, window, scale)
    rows, heads, head_dim = q.shape
    slots, ring_rows, kv_heads, pool_head_dim = ring_k.shape
    check_heads(heads, kv_heads, head_dim, pool_head_dim)
    num_runs = int_rows(runs, torch.int64, RUN_FIELDS, "runs")
    k_rows, *k_heads = k.shape
    if (
        k_heads != [kv_heads, head_dim]
        or v.shape != k.shape
        or int_rows(tags, torch.int64, ring_rows, "tags") != slots
    ):
        raise ValueError(f"k {k.shape}, v {v.shape}, rings {ring_k.shape}, tags {tags.shape}")
    k_stride = row_stride(k, kv_heads, head_dim, "k")
    out = torch.empty(rows, heads, head_dim)
    args = array(
        "q",
        (
            *FAULT_ENTRIES,
            *(q.data_ptr(), row_stride(q, heads, head_dim, "q"), rows, heads, kv_heads, head_dim),
            *(k.data_ptr(), k_stride, v.data_ptr(), row_stride(v, kv_heads, head_dim, "v"), k_rows),
            *(ring_k.data_ptr(), ring_v.data_ptr(), pool_is_bf16(ring_k, ring_v)),
            *(tags.data_ptr(), slots, ring_rows, runs.data_ptr(), num_runs),
            *(window, out.data_ptr(), torch.get_num_threads()),
        ),
    )
    if fault := _window_attention(args.buffer_info()[0], scale):
        raise fault_error(fault, args[: len(FAULT_ENTRIES)].tolist())
    return out
