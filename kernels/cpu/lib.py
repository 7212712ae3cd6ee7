"""Loads the C++ library of the CPU backend and hands out its functions.

Owns the search for `_treadle_cpu*.so` beside this file (an installation puts it there, and so does
`python -m treadle.kernels.cpu.build`) and the ctypes signatures. The library has threads of its own
(`pool.h`), as many as torch is told to use.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from ..dispatch import KernelUnavailable

ADDRESS = ctypes.c_void_p
INT = ctypes.c_int64
FLOAT = ctypes.c_float

CType = type[ctypes.c_void_p] | type[ctypes.c_int64] | type[ctypes.c_float]

BUILD_HINT = "run `python -m treadle.kernels.cpu.build` (needs a C++ compiler)"


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises `KernelUnavailable` when it is absent or does not load."""
    found = sorted(Path(__file__).parent.glob("_treadle_cpu*.so"))
    if not found:
        raise KernelUnavailable(f"the CPU library is not built; {BUILD_HINT}")
    newest = max(found, key=lambda path: path.stat().st_mtime)
    try:
        return ctypes.CDLL(str(newest))
    except OSError as error:
        raise KernelUnavailable(f"the CPU library does not load ({error}); {BUILD_HINT}") from None


def function(name: str, argtypes: Sequence[CType]) -> Callable[..., int]:
    """A C function that returns int, 0 for success.

    Raises `KernelUnavailable` when this build of the library lacks it.
    """
    found = _symbol(name)
    found.argtypes = list(argtypes)
    found.restype = ctypes.c_int
    return found


def isa() -> str:
    """The instruction set the library chose. Raises `KernelUnavailable`."""
    found = _symbol("treadle_isa")
    found.restype = ctypes.c_char_p
    name: bytes = found()
    return name.decode()


def _symbol(name: str) -> ctypes._NamedFuncPointer:
    try:
        return library()[name]
    except AttributeError:
        message = f"the CPU library has no {name}, it is outdated; {BUILD_HINT}"
        raise KernelUnavailable(message) from None
