"""MetaWeights: shapes in place of values. A builder that takes from it makes the whole module tree
without memory, on torch's meta device, from the configuration alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PackedMatrix

from ..model_config import ModelConfig
from .deepseek_v41_tensors import FP8, TensorSpec, tensor_specs
from .packed import stacked_shape


@dataclass(frozen=True, slots=True)
class MetaWeights:
    """`asked` are the tensors that were taken."""

    specs: Mapping[str, TensorSpec]
    asked: dict[str, TensorSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, config: ModelConfig) -> MetaWeights:
        return cls(tensor_specs(config))

    def made(self, layer: int, num_layers: int) -> None:
        """Nothing was read."""

    def raw(self, name: str) -> Tensor:
        spec = self._ask(name)
        return _empty(spec.shape, torch.float8_e4m3fn if FP8 in spec.dtypes else torch.uint8)

    def dense(self, name: str) -> Tensor:
        return _empty(self._ask(name).shape, torch.float32)

    def scaled(self, *names: str) -> PackedMatrix:
        return ops.join_packed(
            [ops.pack_fp8(self.raw(f"{x}.weight"), self.raw(f"{x}.scale")) for x in names]
        )

    def stacked(self, names: Sequence[Sequence[str]]) -> Tensor:
        for name in (name for parts in names for name in parts):
            self._ask(name)
        return _empty(stacked_shape(self.specs, names), torch.uint8)

    def _ask(self, name: str) -> TensorSpec:
        self.asked[name] = self.specs[name]
        return self.specs[name]


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
