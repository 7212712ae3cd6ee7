"""The backend `triton` in tests: on the device where there is one, else under the interpreter.

Tests keep their tensors on the CPU. On a device, `on_device` copies the arguments there, strides
and all, calls the operator, and copies back what it may have written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from treadle.kernels.triton.device import device_name

F = TypeVar("F", bound=Callable[..., Any])

HAS_DEVICE = device_name() != "interpreter"


def on_device(operator: F) -> F:
    """`operator` of the Triton backend, for tensors of the CPU."""
    if not HAS_DEVICE:
        # numpy warns of infinities and of what is no number, which are results like others
        return np.errstate(all="ignore")(operator)

    @functools.wraps(operator)
    def call(*args: Any, **options: Any) -> Any:
        there = _There()
        result = operator(*map(there.move, args), **{k: there.move(v) for k, v in options.items()})
        return there.back(result)

    return cast(F, call)


def ops_of(module: ModuleType) -> SimpleNamespace:
    """The operators of a module of the Triton backend, each as `on_device` gives it."""
    own = {
        name: on_device(value)
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    }
    return SimpleNamespace(**own)


class _There:
    """Copies of arguments on the device."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[Tensor, Tensor]] = {}

    def move(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in self._moved:
                there = torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device="cuda"
                )
                self._moved[id(value)] = (value, there.copy_(value))
            return self._moved[id(value)][1]
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{f.name: self.move(getattr(value, f.name)) for f in fields(value)}
            )
        return value

    def back(self, result: Any) -> Any:
        torch.cuda.synchronize()
        for here, there in self._moved.values():
            here.copy_(there)
            if result is there:
                return here
        if isinstance(result, tuple):
            return tuple(self.back(x) for x in result)
        return result.cpu() if isinstance(result, Tensor) else result
