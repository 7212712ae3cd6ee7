"""Random weights in place of a checkpoint's, for load tests without files.

A parameter depends on the seed and its own name only, so any rank or order makes the same model.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model_config import ModelConfig
from .names import Shape, is_norm, parameter_shapes

BIAS_SCALE = 0.02


@dataclass(frozen=True, slots=True)
class DummyWeights:
    """`sizes` maps parameters, in the order of loading, to bytes made."""

    sizes: dict[str, int]
    shapes: dict[str, Shape]
    seed: int

    @classmethod
    def make(cls, config: ModelConfig, seed: int = 0) -> DummyWeights:
        shapes = parameter_shapes(config)
        return cls({p: 4 * torch.Size(s).numel() for p, s in shapes.items()}, shapes, seed)

    def load(self, parameter: str) -> Tensor:
        """fp32: norms are one; matrices have a deviation of in^-0.5, which keeps rows at scale."""
        shape = self.shapes[parameter]
        if is_norm(parameter):
            return torch.ones(shape)
        generator = torch.Generator().manual_seed(zlib.crc32(parameter.encode(), self.seed))
        scale = BIAS_SCALE if len(shape) == 1 else shape[-1] ** -0.5
        return torch.randn(shape, generator=generator).mul_(scale)
