"""Int8 weights in groups of 32 along the input axis, and their layout in memory.

A group shares one scale: `weight = data * scale`, data in [-127, 127] (never -128: kernels negate
it), scale float16. Float16 costs no accuracy, since data is rounded against the scale as stored,
and saves 5 % of a decode step's bytes; GGUF's Q8_0 blocks pack without any loss.

Layout, made for reading 16 output features at a time (`Npad` is N rounded up to 16; `p` counts
blocks of 16):

    data    int8     [Npad/16, K/4, 16, 4]    data[p, k4, j, i] = weight[16 p + j, 4 k4 + i]
    scales  float16  [Npad/16, K/32, 16]      scales[p, g, j] of weight[16 p + j, 32 g : 32 g + 32]

Rows of padding hold zeros, so packed weights are joined along N by concatenating blocks where N is
a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
BLOCK = 16
LEVELS = 127 * 256 + 127  # of activations: splits into two signed bytes, neither below -128
TINY = 1e-30  # LEVELS over less than this may overflow float32


@dataclass(frozen=True, slots=True)
class Q8Weight:
    """A packed weight `[out_features, in_features]`; tensors as drawn above, contiguous."""

    data: Tensor
    scales: Tensor
    out_features: int
    in_features: int


def pack_q8(weight: Tensor) -> Q8Weight:
    """Quantise and pack a weight `[N, K]`.

    Raises `ValueError` when K is not a multiple of 32, or when a group's scale overflows float16 or
    is not a number.
    """
    out_features, in_features = check_packable(weight)
    padded = torch.zeros(-(-out_features // BLOCK) * BLOCK, in_features)
    padded[:out_features] = weight
    groups = padded.view(-1, in_features // GROUP, GROUP)
    scales = (groups.abs().amax(dim=2) / 127).half()
    check_scales(scales)
    inverse = torch.where(scales > 0, 1 / scales.float(), 0)
    quants = torch.round(groups * inverse.unsqueeze(2)).clamp(-127, 127).to(torch.int8)
    data = quants.view(-1, BLOCK, in_features // 4, 4).transpose(1, 2).contiguous()
    block_scales = scales.view(-1, BLOCK, in_features // GROUP).transpose(1, 2).contiguous()
    return Q8Weight(data, block_scales, out_features, in_features)


def check_packable(weight: Tensor) -> tuple[int, int]:
    """Return (N, K). Raises `ValueError` as `pack_q8` does."""
    if weight.dim() != 2 or weight.shape[1] % GROUP or weight.shape[1] == 0:
        raise ValueError(
            f"int8 packing needs [N, K] with K a multiple of {GROUP}, not {tuple(weight.shape)}"
        )
    return weight.shape[0], weight.shape[1]


def check_scales(scales: Tensor) -> None:
    """Raises `ValueError` for a scale that is infinite or not a number."""
    if not bool(torch.isfinite(scales).all()):
        raise ValueError("int8 packing: a group of weights is not finite or exceeds float16 scales")


def unpack_q8(w: Q8Weight) -> Tensor:
    """The weight `[N, K]` in float32 that the packed one stands for."""
    quants = w.data.transpose(1, 2).reshape(-1, w.in_features // GROUP, GROUP)
    scales = w.scales.transpose(1, 2).reshape(-1, w.in_features // GROUP)
    return (quants.float() * scales.float().unsqueeze(2)).flatten(1)[: w.out_features]


def concat_q8(parts: Sequence[Q8Weight]) -> Q8Weight:
    """Join weights along the output features, as one product for several projections of the same
    rows.

    Raises `ValueError` when input sizes differ, or when a part but the last has N not a multiple of
    16.
    """
    in_features = parts[0].in_features
    if any(part.in_features != in_features for part in parts):
        raise ValueError(f"cannot join weights with inputs {[part.in_features for part in parts]}")
    if any(part.out_features % BLOCK for part in parts[:-1]):
        sizes = [part.out_features for part in parts]
        raise ValueError(f"cannot join outputs {sizes}: all but the last need multiples of {BLOCK}")
    data = torch.cat([part.data for part in parts])
    scales = torch.cat([part.scales for part in parts])
    return Q8Weight(data, scales, sum(part.out_features for part in parts), in_features)


def q8_rows(w: Q8Weight, ids: Tensor, scale: float = 1.0) -> Tensor:
    """Rows of the weight, times `scale`: the embedding lookup of a tied head.

    Shapes: ids int64 `[T]`; returns float32 `[T, K]`. Raises `ValueError` or `IndexError` for an id
    outside [0, N).
    """
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < w.out_features:
        raise IndexError(f"row ids must lie in [0, {w.out_features})")
    quants = w.data[ids // BLOCK, :, ids % BLOCK].reshape(-1, w.in_features // GROUP, GROUP)
    scales = w.scales[ids // BLOCK, :, ids % BLOCK].float() * scale
    return (quants.float() * scales.unsqueeze(2)).flatten(1)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Activations to 16 bits in groups of 32, each row by itself.

    Shapes: x float32 `[T, K]`; returns int16 `[T, K/32, 32]` within `LEVELS` of zero and float32
    scales `[T, K/32]`. Rounds half to even. A group of nothing above `TINY` is zero.
    """
    groups = x.reshape(x.shape[0], x.shape[1] // GROUP, GROUP)
    peak = groups.abs().amax(dim=2)
    # a tensor divides once; a plain number would be multiplied by a rounded reciprocal
    inverse = torch.where(peak > TINY, peak.new_tensor(LEVELS) / peak, 0)
    quants = torch.round(groups * inverse.unsqueeze(2)).to(torch.int16)
    return quants, peak / LEVELS
