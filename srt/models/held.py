"""Which tensors of a module tree are memory of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from torch import Tensor

from ..layers.engram import EngramTable


def held_bytes(*trees: object) -> int:
    """Bytes of all tensors below, each counted once. Tables that stay in the mapped checkpoint are
    the file's pages and not counted."""
    tensors = {id(x): x for tree in trees for x in _tensors(tree)}
    return sum(x.nbytes for x in tensors.values())


def _tensors(part: object) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _tensors(item)
    elif is_dataclass(part) and not isinstance(part, EngramTable):
        for item in fields(part):
            yield from _tensors(getattr(part, item.name))
