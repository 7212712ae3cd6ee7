"""`reference/paged_attention.py` on the C++ tiles of attention.cpp."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from ..reference import paged_attention as reference
from . import lib
from .attention_args import (
    FAULT_ENTRIES,
    check_heads,
    fault_error,
    int_rows,
    pool_is_bf16,
    row_stride,
)

_paged_attention = lib.function("treadle_paged_attention", (lib.ADDRESS, lib.FLOAT))

RUN_FIELDS = 4


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    runs: Tensor,
    scale: float,
) -> Tensor:
    """See the reference, where float64 goes. float32 otherwise, the pool float32 or bfloat16; head
    size a multiple of 16 up to 512. A row is the same bits whatever runs beside it, on any number
    of threads.
    """
    if q.dtype is torch.float64:
        return reference.paged_attention(q, k_pages, v_pages, page_table, runs, scale)
    rows, heads, head_dim = q.shape
    num_pages, page_size, kv_heads, pool_head_dim = k_pages.shape
    slots, table_pages = page_table.shape
    check_heads(heads, kv_heads, head_dim, pool_head_dim)
    int_rows(page_table, torch.int32, table_pages, "page_table")
    num_runs = int_rows(runs, torch.int64, RUN_FIELDS, "runs")
    out = torch.empty(rows, heads, head_dim)
    args = array(
        "q",
        (
            *FAULT_ENTRIES,
            *(q.data_ptr(), row_stride(q, heads, head_dim, "q"), rows, heads, kv_heads, head_dim),
            *(k_pages.data_ptr(), v_pages.data_ptr(), pool_is_bf16(k_pages, v_pages)),
            *(num_pages, page_size, page_table.data_ptr(), slots, table_pages),
            *(runs.data_ptr(), num_runs, out.data_ptr(), torch.get_num_threads()),
        ),
    )
    if fault := _paged_attention(args.buffer_info()[0], scale):
        raise fault_error(fault, args[: len(FAULT_ENTRIES)].tolist())
    return out
