"""Binds every operator to one backend, once per process.

Owns the choice of backend and nothing else: `ops.py` names the operators, `reference/` says what
they compute. The table below lists the backends of a device from best to last; the first that is
usable wins, the choice is logged once, and `TREADLE_KERNELS` overrides it:

    TREADLE_KERNELS=triton                               one backend for all
    TREADLE_KERNELS=triton,paged_attention=reference     another one for an operator

There is no scoring and no registration by import. A process that says nothing runs on the CPU.

Invariant: `op` returns something of the reference's type, so call sites are checked against the
specification. An operator that the chosen backend lacks runs its reference: with one warning where
the library is an older build, said at DEBUG level where nobody has written it yet.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])

BACKENDS_BY_DEVICE = {"cpu": ("cpu", "reference"), "cuda": ("triton", "reference")}
BACKENDS = ("cpu", "triton", "reference")


class KernelUnavailable(RuntimeError):
    """A backend, or one operator of it, cannot run in this process.

    The text says what to do about it.
    """


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `TREADLE_KERNELS` says. `backend` is "" where it leaves the choice to us."""

    backend: str
    by_operator: dict[str, str]


def op(reference: F, *, cpu: str | None = None, triton: str | None = None) -> F:
    """Bind an operator. `cpu` and `triton` are `module.function` below `kernels/cpu` and
    `kernels/triton`; None where that backend has none.

    Raises `KernelUnavailable` when a backend that `TREADLE_KERNELS` names is unknown or cannot be
    loaded.
    """
    name = reference.__name__
    chosen = wanted().by_operator.get(name) or backend()
    path = {"cpu": cpu, "triton": triton}.get(chosen)
    if path is None:
        if chosen != "reference":
            logger.debug("kernels operator=%s backend=reference reason=no %s", name, chosen)
        return reference
    module_name, function_name = path.rsplit(".", 1)
    try:
        module = importlib.import_module(f".{chosen}.{module_name}", __package__)
    except KernelUnavailable as error:
        logger.warning("kernels operator=%s backend=reference reason=%s", path, error)
        return reference
    return cast(F, vars(module)[function_name])


def check_names(operators: Iterable[str]) -> None:
    """Raises `KernelUnavailable` when `TREADLE_KERNELS` names something else than `operators`."""
    unknown = sorted(wanted().by_operator.keys() - set(operators))
    if unknown:
        raise KernelUnavailable(f"TREADLE_KERNELS: there is no operator {', '.join(unknown)}")


@functools.cache
def backend() -> str:
    """The backend of this process: one of `BACKENDS`."""
    asked = wanted().backend
    names = BACKENDS_BY_DEVICE["cpu"] if not asked else (asked,)
    for name in names:
        try:
            detail = _probe(name)
        except KernelUnavailable as error:
            if asked:
                raise
            logger.warning("kernels backend=%s unusable, reason=%s", name, error)
            continue
        reason = " reason=TREADLE_KERNELS" if asked == "reference" else detail
        logger.info("kernels backend=%s%s", name, reason)
        return name
    raise AssertionError("the reference is always usable")


@functools.cache
def wanted() -> Wanted:
    """`TREADLE_KERNELS`, checked. Raises `KernelUnavailable`."""
    first, *rest = os.environ.get("TREADLE_KERNELS", "").split(",")
    pairs = [part.partition("=") for part in rest]
    for name in (first, *(value for _, _, value in pairs)):
        if name not in BACKENDS and (name or rest):
            known = ", ".join(BACKENDS)
            raise KernelUnavailable(f"TREADLE_KERNELS is {name!r}; it may be one of {known}")
    return Wanted(first, {name: value for name, _, value in pairs})


def _probe(name: str) -> str:
    """What the log says of a backend beside its name. Raises `KernelUnavailable`."""
    if name == "cpu":
        return f" isa={importlib.import_module('.cpu.lib', __package__).isa()}"
    if name == "triton":
        return f" device={importlib.import_module('.triton.device', __package__).device_name()}"
    return ""
