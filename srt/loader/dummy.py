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
    device: torch.device

    @classmethod
    def make(
        cls, config: ModelConfig, seed: int = 0, device: torch.device | None = None
    ) -> DummyWeights:
        """`device`: where they are made, by default the CPU. Each has numbers of its own."""
        shapes = parameter_shapes(config)
        sizes = {p: 4 * torch.Size(s).numel() for p, s in shapes.items()}
        return cls(sizes, shapes, seed, device or torch.device("cpu"))

    def load(self, parameter: str) -> Tensor:
        """fp32: norms are one; matrices have a deviation of in^-0.5, which keeps rows at scale."""
        shape = self.shapes[parameter]
        if is_norm(parameter):
            return torch.ones(shape)
        seed = zlib.crc32(parameter.encode(), self.seed)
        generator = torch.Generator(self.device).manual_seed(seed)
        scale = BIAS_SCALE if len(shape) == 1 else shape[-1] ** -0.5
        return torch.randn(shape, generator=generator, device=self.device).mul_(scale)
