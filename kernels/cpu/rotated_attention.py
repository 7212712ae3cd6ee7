"""Attention of rows as they come from the projection, on the CPU: one call after the other."""

from __future__ import annotations

from torch import Tensor

from ..reference.rotated_attention import PagedKeys, Rotation, WindowKeys
from .kv_write import kv_write
from .paged_attention import paged_attention
from .rope import qk_norm_rope, rope
from .window_attention import window_attention


def rotated_paged_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: PagedKeys, scale: float
) -> Tensor:
    """See `reference.rotated_attention.rotated_paged_attention`."""
    _rotate(q, k, rotation)
    kv_write(k, v, keys.k, keys.v, keys.dst)
    return paged_attention(q, keys.k, keys.v, keys.table, keys.runs, scale)


def rotated_window_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: WindowKeys, scale: float
) -> Tensor:
    """See `reference.rotated_attention.rotated_window_attention`."""
    _rotate(q, k, rotation)
    return window_attention(
        q, k, v, keys.k, keys.v, keys.tags, keys.runs, keys.window, scale
    )  # fmt: skip


def _rotate(q: Tensor, k: Tensor, rotation: Rotation) -> None:
    if rotation.norm is None:
        rope(q, k, rotation.positions, rotation.cos_sin)
    else:
        qk_norm_rope(q, k, rotation.norm, rotation.positions, rotation.cos_sin)
