"""Attention of rows as they come from the projection: norm of each head, rotation, write, attend.

A specification by composition. Kernels that do it in one call leave q and k as they like.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .kv_write import kv_write
from .paged_attention import paged_attention
from .rope import QkNorm, qk_norm_rope, rope
from .window_attention import window_attention


@dataclass(frozen=True, slots=True)
class Rotation:
    """Positions int64 `[T]` of the rows, the table `[num_positions, D]` of `rope_table`, and the
    norm of heads before it, where there is one."""

    positions: Tensor
    cos_sin: Tensor
    norm: QkNorm | None


@dataclass(frozen=True, slots=True)
class PagedKeys:
    """Where keys and values of global layers are and go: see `kv_write` and `paged_attention`."""

    k: Tensor
    v: Tensor
    dst: Tensor
    table: Tensor
    runs: Tensor


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """Where keys and values of window layers are and go: see `window_attention`."""

    k: Tensor
    v: Tensor
    tags: Tensor
    runs: Tensor
    window: int


def rotated_paged_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: PagedKeys, scale: float
) -> Tensor:
    """Norm and rotate q and k, `kv_write`, `paged_attention`.

    Shapes: q `[T, H, D]`, k and v `[T, K, D]`, rows may be strided; returns `[T, H, D]`.
    Writes q and k (what they hold then is nobody's), keys.k, keys.v. Raises as its parts do.
    """
    _rotate(q, k, rotation)
    kv_write(k, v, keys.k, keys.v, keys.dst)
    return paged_attention(q, keys.k, keys.v, keys.table, keys.runs, scale)


def rotated_window_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: WindowKeys, scale: float
) -> Tensor:
    """Norm and rotate q and k, `window_attention`.

    Shapes as `rotated_paged_attention`; all rows attend. Writes q and k (what they hold then is
    nobody's), keys.k, keys.v, keys.tags. Raises as its parts do.
    """
    _rotate(q, k, rotation)
    return window_attention(
        q, k, v, keys.k, keys.v, keys.tags, keys.runs, keys.window, scale
    )  # fmt: skip


def _rotate(q: Tensor, k: Tensor, rotation: Rotation) -> None:
    if rotation.norm is None:
        rope(q, k, rotation.positions, rotation.cos_sin)
    else:
        qk_norm_rope(q, k, rotation.norm, rotation.positions, rotation.cos_sin)
