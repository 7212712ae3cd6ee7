"""Gated activations of an MLP whose gate and up projections are one matrix product."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def gelu_tanh_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """`gelu(gate) * up` with the tanh form of GELU (Hendrycks and Gimpel 2016, section 2).

    Shapes: gate_up `[T, 2F]`, gate first, rows may be strided; returns `[T, F]`. Writes `out` when
    given.
    """
    gate, up = _halves(gate_up)
    return _finish(F.gelu(gate, approximate="tanh") * up, gate_up.dtype, out)


def silu_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """`silu(gate) * up`; shapes as `gelu_tanh_mul`. Source: GLU variants (Shazeer 2020), SwiGLU."""
    gate, up = _halves(gate_up)
    return _finish(F.silu(gate) * up, gate_up.dtype, out)


def _halves(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    wide = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32))
    gate, up = wide.chunk(2, dim=-1)
    return gate, up


def _finish(result: Tensor, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    return result.to(dtype) if out is None else out.copy_(result)
