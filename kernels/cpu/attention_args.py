"""What the attention adapters share: cheap checks of tensors, and errors from the library's faults.

The library takes one int64 array a call: four entries for the place of a fault, then the arguments
in the order of the `Args` structs of attention.cpp. Filling an array costs half of what two dozen
ctypes arguments would. Checks here are those that a wrong caller would otherwise pay for with a
crash; runs, pages and tags are checked by the library.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAULT_ENTRIES = (0, 0, 0, 0)

BAD_RUN, BAD_PAGE, BAD_TAG = 1, 2, 3

MAX_HEAD_DIM = 512  # as in attention.h
HEAD_DIM_STEP = 16  # a vector of the widest instruction set
MAX_GROUP = 96


def row_stride(x: Tensor, heads: int, head_dim: int, name: str) -> int:
    """Elements between rows of x `[T, heads, D]`; heads of a row are contiguous float32."""
    row, head, inner = x.stride()
    if x.dtype is not torch.float32 or inner != 1 or (head != head_dim and heads != 1):
        raise TypeError(f"{name} must be float32 with contiguous rows, it is {describe(x)}")
    return row


def pool_is_bf16(k: Tensor, v: Tensor) -> bool:
    """Whether a pool holds bfloat16; float32 otherwise. Raises `TypeError` for anything else."""
    dtype = k.dtype
    if (
        (dtype is not torch.float32 and dtype is not torch.bfloat16)
        or v.dtype is not dtype
        or v.shape != k.shape
        or not (k.is_contiguous() and v.is_contiguous())
    ):
        raise TypeError(f"pool must be contiguous, it is k {describe(k)}, v {describe(v)}")
    return dtype is torch.bfloat16


def check_heads(heads: int, kv_heads: int, head_dim: int, pool_head_dim: int) -> None:
    """Raises `ValueError` for sizes that the tiles are not made for."""
    if (
        heads % kv_heads
        or heads // kv_heads > MAX_GROUP
        or head_dim != pool_head_dim
        or head_dim % HEAD_DIM_STEP
        or head_dim > MAX_HEAD_DIM
    ):
        raise ValueError(
            f"{heads} heads of {head_dim} on {kv_heads} of {pool_head_dim}: head size must be a "
            f"multiple of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}, groups of up to {MAX_GROUP} heads"
        )


def int_rows(x: Tensor, dtype: torch.dtype, columns: int, name: str) -> int:
    """Rows of x. Raises `TypeError` unless it is a contiguous `[., columns]` of `dtype`."""
    rows, width = x.shape
    if x.dtype is not dtype or width != columns or not x.is_contiguous():
        raise TypeError(f"{name} must be contiguous [., {columns}] {dtype}, it is {describe(x)}")
    return rows


def fault_error(fault: int, place: list[int]) -> Exception:
    """The exception for what the library returned and left in the array's first entries."""
    run, slot, position, found = place
    if fault == BAD_TAG:
        return RuntimeError(
            f"slot {slot} has no window row of position {position}: the ring holds {found} there"
        )
    if fault == BAD_PAGE:
        return ValueError(f"run {run}: slot {slot}, position {position} is in page {found}")
    return ValueError(f"run {run}: slot {slot}, position {position} is outside its tensors")


def describe(x: Tensor) -> str:
    """Shape, strides and dtype, for messages."""
    return f"{tuple(x.shape)} strides {x.stride()} {x.dtype}"
