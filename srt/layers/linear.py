"""Matrices as they are kept and applied: dense, or int8 in groups of 32.

A fused matrix (q|k|v, gate|up) is its parts joined along output features. On the CPU activations
stay in float32 (float64 in toy models) whatever the storage.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import Q8Weight

Matrix = Tensor | Q8Weight
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class WeightPolicy:
    """How and where matrices are stored. `dtype` is that of dense ones; `is_q8` packs those whose
    input size is a multiple of 32, the others stay dense.
    """

    dtype: torch.dtype
    is_q8: bool
    device: torch.device = CPU

    def keep(self, weight: Tensor) -> Matrix:
        """The stored form of `weight` [N, K]. A fresh tensor; `weight` may be dropped."""
        if self.is_q8 and weight.shape[1] % 32 == 0:
            return ops.pack_q8(weight.float().contiguous())
        return weight.to(self.device, self.dtype).contiguous()

    @property
    def activation_dtype(self) -> torch.dtype:
        """Arithmetic costs least on the CPU in float32, on a device in the dtype of weights."""
        if self.device.type != "cpu":
            return self.dtype
        return torch.float64 if self.dtype is torch.float64 else torch.float32


def join(parts: list[Matrix]) -> Matrix:
    """One matrix of all output features, in order. Parts must be stored alike."""
    dense = [x for x in parts if isinstance(x, Tensor)]
    packed = [x for x in parts if isinstance(x, Q8Weight)]
    if packed and dense:
        raise ValueError("a fused matrix cannot mix packed and dense parts")
    return ops.concat_q8(packed) if packed else torch.cat(dense)


@dataclass(slots=True, eq=False)
class Linear:
    """`x @ weight.T + bias`. Shapes: x [T, K], weight [N, K], bias [N] or None; out [T, N]."""

    weight: Matrix
    bias: Tensor | None = None

    def __call__(self, x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
        """Output features [start, end) only; both multiples of 16 when packed."""
        if isinstance(self.weight, Q8Weight):
            out = ops.linear_q8(x, self.weight, out_start=start, out_end=end)
            return out if self.bias is None else out.add_(self.bias[start:end])
        weight = self.weight[start:end]
        bias = None if self.bias is None else self.bias[start:end]
        if weight.dtype == x.dtype:
            return ops.linear(x, weight, bias)
        out = ops.linear(x.to(weight.dtype), weight, None).to(x.dtype)
        return out if bias is None else out.add_(bias)


@dataclass(slots=True, eq=False)
class Embedding:
    """Rows of a [V, C] matrix, scaled; the same matrix may be the head."""

    weight: Matrix
    scale: float
    dtype: torch.dtype

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Shapes: token_ids int64 [T]; out [T, C]."""
        if isinstance(self.weight, Q8Weight):
            return ops.q8_rows(self.weight, token_ids, self.scale)
        return self.weight.index_select(0, token_ids).to(self.dtype).mul_(self.scale)
