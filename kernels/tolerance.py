"""Allowed differences between a backend and its reference, by operator and dtype.

A backend sums in another order and may fuse a product with its sum, so the bound is a small
multiple of the unit of rounding times the length of the sum; it is not a licence for another
formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|got - want| <= absolute + relative * |want|`, elementwise."""

    relative: float
    absolute: float


_BY_OPERATOR = {
    ("linear", torch.float32): Tolerance(1e-5, 1e-4),
    ("linear", torch.float64): Tolerance(1e-12, 1e-12),
    ("linear", torch.bfloat16): Tolerance(1.6e-2, 1e-1),
    ("gated_linear", torch.float32): Tolerance(1e-5, 1e-4),
    ("gated_linear", torch.float64): Tolerance(1e-12, 1e-12),
    # gate and up are rounded: one unit of the last place in either, times the other
    ("gated_linear", torch.bfloat16): Tolerance(2.4e-2, 1e-1),
    # integer dots are exact; what is left is the sum over at most 64 groups
    ("linear_q8", torch.float32): Tolerance(1e-5, 2e-4),
    ("norm", torch.float32): Tolerance(2e-6, 2e-6),
    # one unit of the last place, of the result or of a sum before it
    ("norm", torch.bfloat16): Tolerance(1.6e-2, 1.6e-2),
    ("rope", torch.bfloat16): Tolerance(1.6e-2, 1.6e-2),
    ("activation", torch.bfloat16): Tolerance(1.6e-2, 1e-2),
    ("rope", torch.float32): Tolerance(1e-5, 2e-6),
    ("activation", torch.float32): Tolerance(2e-6, 1e-6),
    ("packed_linear", torch.float32): Tolerance(1e-5, 2e-4),
    ("moe", torch.float32): Tolerance(2e-5, 2e-4),
    ("latent", torch.float32): Tolerance(1e-5, 1e-5),
    ("gate", torch.float32): Tolerance(1e-5, 2e-6),
    # forty normalisations, one after the other
    ("hyper", torch.float32): Tolerance(2e-5, 4e-6),
}


def tolerance(operator: str, dtype: torch.dtype = torch.float32) -> Tolerance:
    """The bound of an operator family. Raises `KeyError` where none has been set."""
    return _BY_OPERATOR[operator, dtype]


def assert_close(got: torch.Tensor, want: torch.Tensor, operator: str) -> None:
    """Compare a backend's result with the reference's. Raises `AssertionError`."""
    bound = tolerance(operator, want.dtype)
    torch.testing.assert_close(got, want, rtol=bound.relative, atol=bound.absolute)
