"""`reference/kv_write.py` in C++."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from ..reference import kv_write as reference
from . import lib
from .attention_args import FAULT_ENTRIES, describe, pool_is_bf16, row_stride

_kv_write = lib.function("treadle_kv_write", (lib.ADDRESS,))


def kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, dst: Tensor) -> None:
    """See the reference, where float64 goes. k and v float32, pages float32 or bfloat16."""
    if k.dtype is torch.float64:
        reference.kv_write(k, v, k_pages, v_pages, dst)
        return
    num_pages, page_size, kv_heads, head_dim = k_pages.shape
    if k.shape != v.shape or k.shape[1:] != k_pages.shape[2:]:
        raise ValueError(f"k {k.shape}, v {v.shape}, pages {k_pages.shape}")
    rows, num_page_rows = k.shape[0], num_pages * page_size
    if dst.dtype is not torch.int64 or dst.shape != (rows,) or not dst.is_contiguous():
        raise TypeError(f"dst must be contiguous [{rows}] int64, it is {describe(dst)}")
    k_stride = row_stride(k, kv_heads, head_dim, "k")
    v_stride = row_stride(v, kv_heads, head_dim, "v")
    args = array(
        "q",
        (
            *FAULT_ENTRIES,
            *(k.data_ptr(), k_stride, v.data_ptr(), v_stride),
            *(rows, kv_heads * head_dim, k_pages.data_ptr(), v_pages.data_ptr()),
            *(pool_is_bf16(k_pages, v_pages), num_page_rows, dst.data_ptr()),
            torch.get_num_threads(),
        ),
    )
    if _kv_write(args.buffer_info()[0]):
        row, _, where, _ = args[: len(FAULT_ENTRIES)]
        raise ValueError(f"row {row} goes to page row {where}, the pool has {num_page_rows}")
