"""A module tree on a device.

Tables that stay in the mapped checkpoint become pinned memory of the host, which the device reads
by itself: they may be larger than its own. Everything else is copied there, each tensor once.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

import torch
from torch import Tensor

from ..layers.engram import EngramTable

T = TypeVar("T")


def moved(tree: T, device: torch.device) -> T:
    """`tree` itself for the CPU. Raises: RuntimeError when memory does not suffice."""
    return tree if device.type == "cpu" else cast(T, _moved(tree, device, {}))


def _moved(part: object, device: torch.device, known: dict[int, Tensor]) -> object:
    if isinstance(part, Tensor):
        if id(part) not in known:
            known[id(part)] = part.to(device)
        return known[id(part)]
    if isinstance(part, tuple):
        return tuple(_moved(item, device, known) for item in part)
    if isinstance(part, EngramTable):
        return EngramTable(_pinned(part.codes), _pinned(part.scales))
    if is_dataclass(part) and not isinstance(part, type):
        parts = {x.name: _moved(getattr(part, x.name), device, known) for x in fields(part)}
        return replace(part, **parts)
    return part


def _pinned(table: Tensor) -> Tensor:
    return table.view(torch.uint8).pin_memory().view(table.dtype)
