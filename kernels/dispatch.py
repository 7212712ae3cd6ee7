"""Binds every operator to one backend, once per process.

Owns the choice of backend and nothing else: `ops.py` names the operators, `reference/` says what
they compute. The table below lists the backends of a device from best to last; the first that is
usable wins, the choice is logged once, and `TREADLE_KERNELS=reference|cpu` overrides it. There is
no scoring and no registration by import.

Invariant: `op` returns something of the reference's type, so call sites are checked against the
specification. An operator that the chosen backend lacks (an older build of the library) runs its
reference, with one warning.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import TypeVar, cast

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])

BACKENDS_BY_DEVICE = {"cpu": ("cpu", "reference")}


class KernelUnavailable(RuntimeError):
    """A backend, or one operator of it, cannot run in this process.

    The text says what to do about it.
    """


def op(reference: F, *, cpu: str | None = None) -> F:
    """Bind an operator. `cpu` is `module.function` below `kernels/cpu`; None where only the
    reference exists.

    Raises `KernelUnavailable` when the backend that `TREADLE_KERNELS` names is unknown or cannot be
    loaded.
    """
    if cpu is None or backend() == "reference":
        return reference
    module_name, function_name = cpu.rsplit(".", 1)
    try:
        module = importlib.import_module(f".cpu.{module_name}", __package__)
    except KernelUnavailable as error:
        logger.warning("kernels operator=%s backend=reference reason=%s", cpu, error)
        return reference
    return cast(F, vars(module)[function_name])


@functools.cache
def backend() -> str:
    """The backend of this process: a name from `BACKENDS_BY_DEVICE`."""
    names = BACKENDS_BY_DEVICE["cpu"]
    wanted = os.environ.get("TREADLE_KERNELS", "")
    if wanted and wanted not in names:
        known = ", ".join(names)
        raise KernelUnavailable(f"TREADLE_KERNELS is {wanted!r}; it may be one of {known}")
    if wanted == "reference":
        logger.info("kernels backend=reference reason=TREADLE_KERNELS")
        return wanted
    lib = importlib.import_module(".cpu.lib", __package__)
    try:
        isa = lib.isa()
    except KernelUnavailable as error:
        if wanted:
            raise
        logger.warning("kernels backend=reference reason=%s", error)
        return "reference"
    logger.info("kernels backend=cpu isa=%s", isa)
    return "cpu"
