"""Attention of a global or window layer: project, rotate, write K/V, attend, project back.

Owns no KV and no cache arithmetic: where rows go was decided in `worker/mapping.py`. New rows of a
global layer are written before they are read, so a row always sees its own key in the pages; rows
that are replayed write nothing and read the cached pages (rule B6).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PagedKeys, QkNorm, Rotation, WindowKeys

from .batch import ForwardBatch, LayerRows
from .linear import Linear
from .pools import KVPools


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """`index` is the layer's place among layers of its kind; `window` 0 marks a global layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int
    index: int


@dataclass(slots=True, eq=False)
class Attention:
    shape: AttentionShape
    qkv: Linear
    o: Linear
    norm: QkNorm | None
    cos_sin: Tensor

    def __call__(self, x: Tensor, rows: LayerRows, batch: ForwardBatch, pools: KVPools) -> Tensor:
        """Shapes: x [R, C], normed, rows entering; returns [O, C], rows leaving. Writes pools."""
        q, k, v = self._project(x, rows)
        if rows.keep is None:
            out = self._attend(q, k, v, rows, batch, pools)
        else:
            out = self._attend_kept(q, k, v, rows, batch, pools)
        return self.o(out.flatten(1))

    def _project(self, x: Tensor, rows: LayerRows) -> tuple[Tensor, Tensor, Tensor]:
        s = self.shape
        q_size, kv_size = s.num_heads * s.head_dim, s.num_kv_heads * s.head_dim
        if rows.keep is None:
            fused = self.qkv(x)
            q, kv = fused[:, :q_size], fused[:, q_size:]
        else:
            q = self.qkv(rows.drop(x), 0, q_size)
            kv = self.qkv(x, q_size)
        return (
            q.view(q.shape[0], s.num_heads, s.head_dim),
            kv[:, :kv_size].view(kv.shape[0], s.num_kv_heads, s.head_dim),
            kv[:, kv_size:].view(kv.shape[0], s.num_kv_heads, s.head_dim),
        )

    def _attend(  # noqa: PLR0913 (q, k, v are one thing)
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rows: LayerRows,
        batch: ForwardBatch,
        pools: KVPools,
    ) -> Tensor:
        """All rows leave."""
        i, scale = self.shape.index, self.shape.scale
        rotation = Rotation(rows.positions, self.cos_sin, self.norm)
        if self.shape.window:
            rings, runs = pools.windows, rows.window_runs
            ring = WindowKeys(rings.k[i], rings.v[i], rings.tags[i], runs, self.shape.window)
            return ops.rotated_window_attention(q, k, v, rotation, ring, scale)
        k_pages, v_pages, table = pools.pages.k[i], pools.pages.v[i], batch.page_table
        pages = PagedKeys(k_pages, v_pages, rows.page_dst, table, rows.paged_runs)
        return ops.rotated_paged_attention(q, k, v, rotation, pages, scale)

    def _attend_kept(  # noqa: PLR0913 (q, k, v are one thing)
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rows: LayerRows,
        batch: ForwardBatch,
        pools: KVPools,
    ) -> Tensor:
        """Fewer queries than keys."""
        s, i = self.shape, self.shape.index
        self._rotate(q, k, rows)
        if s.window:
            rings = pools.windows
            return ops.window_attention(
                q, k, v, rings.k[i], rings.v[i], rings.tags[i], rows.window_runs, s.window, s.scale
            )  # fmt: skip
        k_pages, v_pages = pools.pages.k[i], pools.pages.v[i]
        ops.kv_write(k, v, k_pages, v_pages, rows.page_dst)
        return ops.paged_attention(q, k_pages, v_pages, batch.page_table, rows.paged_runs, s.scale)

    def _rotate(self, q: Tensor, k: Tensor, rows: LayerRows) -> None:
        if self.norm is None:
            ops.rope(q, q[:, :0], rows.out_positions, self.cos_sin)
            ops.rope(k, k[:, :0], rows.positions, self.cos_sin)
        else:
            norm, table = self.norm, self.cos_sin
            ops.norm_rope(q, norm.q_weight, rows.out_positions, table, norm.eps)
            ops.norm_rope(k, norm.k_weight, rows.positions, table, norm.eps)
