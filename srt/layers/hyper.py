"""The two hyper-connections of a layer: streams in, streams out (deepseek-v41.md 2.4).

What a sublayer reads is weighted by the *previous* sublayer's `pre`: a collapse does not wait for
the weights that its own streams give. The caller carries `pre` from sublayer to sublayer.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import HyperMatrix


@dataclass(slots=True, eq=False)
class Sublayer:
    """`norm` [D] is applied to what is read."""

    matrix: HyperMatrix
    norm: Tensor

    def read(self, x: Tensor, pre: Tensor) -> Tensor:
        """Shapes: x [T, N, D], pre [T, N]; returns [T, D], normed."""
        return ops.rms_norm(ops.hyper_collapse(x, pre), self.norm, self.matrix.eps)

    def write(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: x [T, N, D] of the rows that y [T, D], the sublayer's output, was made for.
        Returns the new streams and `pre` for the next sublayer."""
        pre, post, comb = ops.hyper_weights(x, self.matrix)
        return ops.hyper_expand(y, post, comb, x), pre
