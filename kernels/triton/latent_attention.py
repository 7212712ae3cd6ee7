"""Attention over latents on a device for float32. Specification: `reference/latent_attention.py`,
which other dtypes run.

A program takes some heads of one row: a softmax that is corrected as larger scores come, first over
the window's keys, then over the chosen entries, and the sink last. Products are in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import latent_attention as reference
from .small_floats import INFINITY

HEADS, KEYS = 16, 16  # of a program, at a time
LOWEST = tl.constexpr(-1e30)  # of scores that count for nothing; finite, so that differences are


def latent_attention(
    q: Tensor, window: Tensor, window_mask: Tensor, entries: Tensor, chosen: Tensor, sink: Tensor
) -> Tensor:
    """See `reference.latent_attention.latent_attention`. Raises `ValueError` when sizes disagree.
    An entry that does not exist is not seen."""
    rows, heads, size = q.shape
    wide = (q, window, entries, sink)
    if any(x.dtype is not torch.float32 for x in wide):
        return reference.latent_attention(q, window, window_mask, entries, chosen, sink)
    if (
        window.shape[1] != size
        or entries.shape[1] != size
        or window_mask.shape != (rows, len(window))
        or len(chosen) != rows
        or sink.shape != (heads,)
    ):
        raise ValueError(f"latent_attention of q {tuple(q.shape)}, window {tuple(window.shape)}")
    q, window, entries, sink = (x.contiguous() for x in wide)
    mask, chosen = window_mask.contiguous(), chosen.contiguous()
    out = torch.empty_like(q)
    if rows:
        block = max(16, triton.next_power_of_2(size))
        _attend[(rows, triton.cdiv(heads, HEADS))](
            q, window, mask, entries, chosen, sink, out,
            heads, size, len(window), len(entries), chosen.shape[1], float(size) ** -0.5,
            HEADS, KEYS, block,
        )  # fmt: skip
    return out


@triton.jit
def add_keys(query, keys, seen, largest, total, found, scale):
    """The softmax so far with some more keys [K, D], of which `seen` [K] take part."""
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
    scores = tl.where(seen[None, :], scores, -INFINITY)
    higher = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    correction = tl.exp(largest - higher)
    found = found * correction[:, None]
    found = tl.dot(weights, keys, found, input_precision="ieee")
    return higher, total * correction + tl.sum(weights, 1), found


@triton.jit
def finish(largest, total, found, sink):
    """Divided once, by the sum with the sink in it."""
    higher = tl.maximum(largest, sink)
    correction = tl.exp(largest - higher)
    total = total * correction + tl.exp(sink - higher)
    return found * (correction / total)[:, None]


@triton.jit(do_not_specialize=["num_keys", "num_entries", "num_chosen"])
def _attend(
    q, window, mask, entries, chosen, sink, out,
    heads, size, num_keys, num_entries, num_chosen, scale,
    HEADS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, channel = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, SIZE)
    is_head, is_channel = head < heads, (channel < size)[None, :]
    at = (row * heads + head[:, None]) * size + channel[None, :]
    inside = is_head[:, None] & is_channel  # bounds: heads, channels
    query = tl.load(q + at, inside, other=0.0)
    largest = tl.full([HEADS], LOWEST, tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    found = tl.zeros([HEADS, SIZE], tl.float32)
    for start in range(0, num_keys, KEYS):
        place = start + tl.arange(0, KEYS)
        seen = tl.load(mask + row * num_keys + place, place < num_keys, other=0) != 0
        keys = tl.load(
            window + place[:, None] * size + channel[None, :], seen[:, None] & is_channel, other=0.0
        )
        largest, total, found = add_keys(query, keys, seen, largest, total, found, scale)
    for start in range(0, num_chosen, KEYS):
        place = start + tl.arange(0, KEYS)
        entry = tl.load(chosen + row * num_chosen + place, place < num_chosen, other=-1)
        seen = (entry >= 0) & (entry < num_entries)
        keys = tl.load(
            entries + entry[:, None] * size + channel[None, :],
            seen[:, None] & is_channel,
            other=0.0,
        )
        largest, total, found = add_keys(query, keys, seen, largest, total, found, scale)
    result = finish(largest, total, found, tl.load(sink + head, is_head, other=0.0))
    tl.store(out + at, result, inside)
