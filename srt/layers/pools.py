"""The KV bytes: pages of global layers and window rings of slots. Allocated once, never grown.

    PagePool   k, v  [Lg, N, P, K, D]   page 0 is the sink; written through `ops.kv_write` only
    WindowPool k, v  [Lw, S, C, K, D]   position q of a slot lives in ring row q % C
               tags  [Lw, S, C]         absolute position held, -1 empty (rules S2, S5)

Tags are per layer because a staircase replay fills the rings of different layers from different
positions on. Only `reset` empties a ring (S6; and canonical requests at each grid point), and only
`adopt` moves one to another request (B5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..model_config import ModelConfig

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class PagePool:
    k: Tensor
    v: Tensor

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device = CPU,
    ) -> PagePool:
        """Zeroed pages for the model's global layers."""
        shape = (
            len(config.global_layers), num_pages, page_size, config.num_kv_heads, config.head_dim
        )  # fmt: skip
        return cls(zeros(shape, dtype, device), zeros(shape, dtype, device))

    @property
    def num_bytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


@dataclass(frozen=True, slots=True)
class WindowPool:
    k: Tensor
    v: Tensor
    tags: Tensor

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        num_slots: int,
        ring_rows: int,
        dtype: torch.dtype,
        device: torch.device = CPU,
    ) -> WindowPool:
        """Empty rings of `ring_rows` rows for the model's window layers."""
        layers = len(config.window_layers)
        shape = (layers, num_slots, ring_rows, config.num_kv_heads, config.head_dim)
        tags = torch.full(shape[:3], -1, dtype=torch.int64, device=device)
        return cls(zeros(shape, dtype, device), zeros(shape, dtype, device), tags)

    def reset(self, slot: int) -> None:
        """Forget every position held for `slot`. Bytes stay; tags say that they are nobody's."""
        self.tags[:, slot] = -1

    def adopt(self, slot: int, source: int, upto: int) -> None:
        """Make the rings of `slot` those of `source`, up to position `upto`: what is held of `upto`
        and above is forgotten (B24). Only tags are written when they are the same slot."""
        if slot != source:
            self.k[:, slot] = self.k[:, source]
            self.v[:, slot] = self.v[:, source]
        held = self.tags[:, source]
        self.tags[:, slot] = torch.where(held < upto, held, -1)

    @property
    def num_bytes(self) -> int:
        """Of keys and values, as the memory budget counts them; tags add 8 bytes a row."""
        return self.k.nbytes + self.v.nbytes


class Pools(Protocol):
    """What the runner does with a model's caches, whatever they hold: see `WindowPool`."""

    @property
    def num_pages(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    def reset(self, slot: int) -> None: ...

    def adopt(self, slot: int, source: int, upto: int) -> None: ...


@dataclass(frozen=True, slots=True)
class KVPools:
    pages: PagePool
    windows: WindowPool

    @property
    def num_pages(self) -> int:
        return self.pages.k.shape[1]

    @property
    def num_bytes(self) -> int:
        return self.pages.num_bytes + self.windows.num_bytes

    def reset(self, slot: int) -> None:
        self.windows.reset(slot)

    def adopt(self, slot: int, source: int, upto: int) -> None:
        self.windows.adopt(slot, source, upto)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device = CPU) -> Tensor:
    """A zeroed tensor. On the CPU its memory is not touched yet: pages of a pool become resident
    when they are first written, so a large budget costs nothing until it is used.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes == 0:  # no layer of this kind; numpy gives such an array no stride to view by
        return torch.zeros(shape, dtype=dtype)
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
