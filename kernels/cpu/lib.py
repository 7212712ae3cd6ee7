"""Loads the C++ library of the CPU backend and hands out its functions.

Owns the search for `_treadle_cpu*.so` beside this file (an installation puts it there, `python -m
treadle.kernels.cpu.build` does too) and the ctypes signatures. torch is imported first on purpose:
the library is linked against no OpenMP runtime and takes the one that torch has loaded, so that a
process has a single thread pool.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ..dispatch import KernelUnavailable

ADDRESS = ctypes.c_void_p
INT = ctypes.c_int64
FLOAT = ctypes.c_float

BUILD_HINT = "run `python -m treadle.kernels.cpu.build` (needs a C++ compiler)"

CType = type[ctypes.c_void_p] | type[ctypes.c_int64] | type[ctypes.c_float]


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises `KernelUnavailable` when it is absent or does not load."""
    found = sorted(Path(__file__).parent.glob("_treadle_cpu*.so"))
    if not found:
        raise KernelUnavailable(f"the CPU library is not built; {BUILD_HINT}")
    try:
        return ctypes.CDLL(str(found[0]))
    except OSError as error:
        raise KernelUnavailable(f"the CPU library does not load ({error}); {BUILD_HINT}") from None


def function(name: str, argtypes: Sequence[CType]) -> Callable[..., int]:
    """A C function that returns int.

    Raises `KernelUnavailable` when this build of the library lacks it.
    """
    try:
        found = library()[name]
    except AttributeError:
        raise KernelUnavailable(
            f"the CPU library has no {name}: it is outdated; {BUILD_HINT}"
        ) from None
    found.argtypes = list(argtypes)
    found.restype = ctypes.c_int
    return found


def isa() -> str:
    """The instruction set the library chose: one of `ISA_NAMES`. Raises `KernelUnavailable`."""
    return ISA_NAMES[function("treadle_isa", ())()]


def num_threads() -> int:
    """Threads an operator may use; torch's setting, so that one knob governs both."""
    return torch.get_num_threads()


ISA_NAMES = ("portable", "avx2", "avx512")
