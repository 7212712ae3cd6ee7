"""Makes Triton's interpreter compute what a device computes.

Triton 3.6 there takes the bounds of a loop as `int(array of one element)`, which numpy 2.4 refuses;
cuts a float32 short where it becomes a bfloat16, where a device rounds to the nearest even one; and
multiplies the bits of bfloat16 matrices as integers. bfloat16 is kept as uint16 there.
"""

from __future__ import annotations

import functools

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


@functools.cache
def mend() -> None:
    """Call before the first kernel is run."""
    patch = interpreter._patch_lang_tensor
    builder = interpreter.InterpreterBuilder
    cast, dot = builder.cast_impl, builder.create_dot

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def cast_impl(self, source, kind):
        kinds = source.dtype.scalar, kind.scalar
        if kinds == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(_rounded(source.data), tl.bfloat16)
        if kinds == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(_widened(source.data), tl.float32)
        return cast(self, source, kind)

    def create_dot(self, a, b, *rest):
        return dot(self, _operand(a), _operand(b), *rest)

    interpreter._patch_lang_tensor = patched
    builder.cast_impl, builder.create_dot = cast_impl, create_dot


def _operand(x):
    if x.dtype.scalar != tl.bfloat16:
        return x
    return interpreter.TensorHandle(_widened(x.data), tl.float32)


def _widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _rounded(values):
    """Bits of the nearest bfloat16, of two the even one; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, nearest).astype(np.uint16)
