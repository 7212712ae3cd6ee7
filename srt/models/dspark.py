"""DSpark: the draft head of DeepSeek-V4.1 (deepseek-v41.md 7.1).

A few layers guess the next tokens of a request at once. What they know of its past is *context*:
one latent per draft layer and position, made from the backbone's own states (taps) of rows that it
has run, kept in window rings behind those of the backbone. A block is the newest token, the anchor,
followed by noise tokens; its rows see the context and each other, and are not kept.

    taps of rows 0 .. P-1 -> context rings         [anchor, noise, ...] at P, P+1, ..
                                                     |-> blocks -> base logits of each place
    from left to right: logits = base + markov(previous draft); the draft; how sure it is
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from ..layers.latent_attention import LatentAttention
from ..layers.latent_pools import LatentPools
from ..layers.quant import ScaledLinear
from .deepseek_v41 import Layer

Pick = Callable[[int, Tensor], Tensor]  # (place, logits [B, V]) -> ids [B]


@dataclass(frozen=True, slots=True)
class Anchor:
    """The newest token of a request, not yet run: `position` tokens have been."""

    slot: int
    position: int
    token: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """Shapes, for B anchors and k places: ids [B, k]; sure [B, k], the probability that each is
    accepted; logits [B, k, V]."""

    ids: Tensor
    sure: Tensor
    logits: Tensor


@dataclass(slots=True, eq=False)
class Dspark:
    """Shapes: markov_embed and markov_head [V, r], confidence [D + r]; embed and head are the
    backbone's. The i-th block uses ring `first_ring + i`."""

    main: ScaledLinear
    main_norm: Tensor
    blocks: tuple[Layer, ...]
    norm: Tensor
    markov_embed: Tensor
    markov_head: Tensor
    confidence: Tensor
    embed: Tensor
    head: ScaledLinear
    noise_id: int
    block_size: int
    num_streams: int
    eps: float

    def keep_context(
        self, taps: Tensor, runs: Sequence[tuple[int, int, int]], pools: LatentPools
    ) -> None:
        """Context of rows whose taps are known. Shapes: taps [T, taps*D]; `runs` of (slot,
        position of the first row, rows), in row order. Writes rings."""
        context = ops.rms_norm(self.main(taps), self.main_norm, self.eps)
        positions = torch.cat([torch.arange(p, p + n) for _, p, n in runs])
        for block in self.blocks:
            attention = block.attention
            projected = attention.wq_a_kv(context)[:, attention.shape.q_rank :]
            packed = pools.formats.window.encode(attention.latents(projected, positions))
            first = 0
            for slot, position, count in runs:
                rows = packed[first : first + count]
                pools.keep_window(attention.shape.layer, slot, position, rows)
                first += count

    def draft(
        self, anchors: Sequence[Anchor], pools: LatentPools, pick: Pick, count: int
    ) -> Drafts:
        """Drafts for the first `count` places after each anchor, at most a block; `pick` samples a
        place for all requests."""
        hidden = self._run_blocks(anchors, pools).view(len(anchors), self.block_size, -1)
        hidden = hidden[:, :count].contiguous()
        base = self.head(ops.rms_norm(hidden.flatten(0, 1), self.norm, self.eps))
        base = base.view(len(anchors), count, -1)
        previous = torch.tensor([x.token for x in anchors])
        ids, sure, logits = [], [], []
        for place in range(count):
            memory = self.markov_embed[previous]
            logit = base[:, place] + ops.linear(memory, self.markov_head, None)
            joined = torch.cat((hidden[:, place], memory), 1)
            sure.append(torch.sigmoid(joined @ self.confidence))
            logits.append(logit)
            previous = pick(place, logit)
            ids.append(previous)
        return Drafts(torch.stack(ids, 1), torch.stack(sure, 1), torch.stack(logits, 1))

    def _run_blocks(self, anchors: Sequence[Anchor], pools: LatentPools) -> Tensor:
        """Hidden states [B*k, D] of the last block, before the norm."""
        size = self.block_size
        ids = torch.full((len(anchors), size), self.noise_id)
        ids[:, 0] = torch.tensor([x.token for x in anchors])
        positions = torch.tensor([[x.position + i for i in range(size)] for x in anchors]).flatten()
        x = self.embed[ids.flatten()].unsqueeze(1).repeat(1, self.num_streams, 1)
        pre = torch.zeros(len(x), self.num_streams)
        pre[:, 0] = 1.0
        for block in self.blocks:
            y = block.attention_streams.read(x, pre)
            y = self._attend(block.attention, y, positions, anchors, pools)
            x, pre = block.attention_streams.write(x, y)
            x, pre = block.moe_streams.write(x, block.moe(block.moe_streams.read(x, pre)))
        return ops.hyper_collapse(x, pre)

    def _attend(
        self,
        attention: LatentAttention,
        x: Tensor,
        positions: Tensor,
        anchors: Sequence[Anchor],
        pools: LatentPools,
    ) -> Tensor:
        """Every row of a block sees the context of its window and the whole block."""
        s, window = attention.shape, pools.formats.window
        fused = attention.wq_a_kv(x)
        _, q = attention.queries(fused[:, : s.q_rank], positions)
        own = window.decode(window.encode(attention.latents(fused[:, s.q_rank :], positions)))
        out = torch.empty_like(q)
        nothing, unused = own.new_zeros(0, s.head_dim), torch.full((self.block_size, 0), -1)
        for index, anchor in enumerate(anchors):
            rows = slice(index * self.block_size, (index + 1) * self.block_size)
            held = pools.context_start(s.layer, anchor.slot, anchor.position, s.window)
            past = pools.window_rows(s.layer, anchor.slot, held, anchor.position)
            keys = torch.cat((window.decode(past), own[rows]))
            seen = torch.ones(self.block_size, len(keys), dtype=torch.bool)
            out[rows] = ops.latent_attention(q[rows], keys, seen, nothing, unused, attention.sink)
        return attention.project(out, positions)
