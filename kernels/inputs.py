"""Seeded inputs for the tests and benches of the row-wise operators.

Values look like what a model feeds them: activations with a few large channels, which is what makes
int8 groups necessary, and weights of a layer's usual size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# one layer of a small model, as (output features, input features): fused q/k/v, attention output,
# fused gate/up, down
LAYER_SHAPES = ((1536, 640), (640, 1024), (4096, 640), (640, 2048))
NUM_LAYERS = 18
HEAD_SHAPE = (262144, 640)


def activations(
    rows: int, size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """`[rows, size]`, normal, every 37th channel 20 times larger."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, size, generator=generator, dtype=torch.float64)
    x[:, ::37] *= 20
    return x.to(dtype)


def weights(
    out_features: int, in_features: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """`[out_features, in_features]`, normal with a standard deviation of `in_features ** -0.5`."""
    generator = torch.Generator().manual_seed(1000 + seed)
    w = torch.randn(out_features, in_features, generator=generator)
    return (w / math.sqrt(in_features)).to(dtype)


def strided(x: Tensor, before: int = 3, after: int = 5) -> Tensor:
    """The same rows as a slice of a wider tensor, like one part of a fused projection's result."""
    size = x.shape[1:].numel()
    wide = x.new_full((x.shape[0], before + size + after), float("nan"))
    part: Tensor = wide[:, before : before + size].view(x.shape)
    part.copy_(x)
    return part
