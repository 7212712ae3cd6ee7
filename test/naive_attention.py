"""Attention as the textbook writes it: what the operators' tests compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from treadle.kernels.attention_inputs import Stream


def naive_attention(
    stream: Stream, window: int, floor: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """All rows against all keys in float64, masked: the textbook formula. K and V are rounded to
    `dtype` first. Rows below the floor are NaN.
    """
    group = stream.shape.heads // stream.shape.kv_heads
    k, v = (x.to(dtype).double().repeat_interleave(group, 1) for x in (stream.k, stream.v))
    scores = torch.einsum("qhd,khd->hqk", stream.q.double(), k) * stream.shape.scale
    row, key = torch.arange(len(k))[:, None], torch.arange(len(k))
    seen = (key <= row) & (key > row - window) & (key >= floor)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)
