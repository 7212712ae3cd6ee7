"""Loads the C++ library of the CPU backend and hands out its functions.

Owns the search for `_treadle_cpu*.so` beside this file (an installation puts it there, and so does
`python -m treadle.kernels.cpu.build`) and the ctypes signatures. torch is imported first on
purpose: the library is linked against no OpenMP runtime and takes the one that torch has loaded, so
that a process has a single thread pool.
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
    except OSError:
        _load_openmp()
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


def _load_openmp() -> None:
    """Make an OpenMP runtime's names visible where torch keeps its copy private.

    Torch's own file comes first: opening it again yields the copy that is already loaded.
    """
    bundled = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    for candidate in (*map(str, bundled), "libgomp.so.1"):
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return
