"""Engine: a loaded model with the pools that it reads and writes. What the runner runs.

A family of models with caches of its own has a loader of its own: `dense_engine.py`,
`latent_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..cache.layout import Capacity
from ..config import ServerConfig
from ..layers.batch import ForwardBatch
from ..layers.pools import Pools
from ..loader.weights import ProgressFn
from ..model_config import ModelConfig
from .drafter import Drafter
from .mapping import Trim


@dataclass(frozen=True, slots=True)
class Engine:
    """`forward` gives the normed hidden rows [n, C] that leave the last layer; `head` makes logits
    [n, V] of some of them. `weight_bytes` is for the report at start."""

    forward: Callable[[ForwardBatch], Tensor]
    head: Callable[[Tensor], Tensor]
    pools: Pools
    weight_bytes: int = 0
    trim: Trim | None = None
    drafter: Drafter | None = None  # its `forward` is the engine's


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Everything that a loader needs. `config` is resolved: no value is "auto"."""

    config: ServerConfig
    model: ModelConfig
    path: Path
    capacity: Capacity
    ring_rows: int
    progress: ProgressFn
