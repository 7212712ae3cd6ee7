"""The one door to weights: parameters one at a time, in our names and layout, from any source.

Owns the choice of source and the progress count. A parameter is loaded when the consumer asks for
it, so at most one is held here, and the consumer may pack it and drop it. Names, shapes and the
order are `names.parameter_shapes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ..checkpoint import is_gguf
from ..errors import ConfigError
from ..model_config import ModelConfig
from .dummy import DummyWeights
from .gguf_tensors import GgufWeights
from .safetensors import SafetensorsWeights

CPU = torch.device("cpu")
ProgressFn = Callable[[int, int, str], None]  # bytes done, bytes in all, what was just loaded


class WeightSource(Protocol):
    @property
    def sizes(self) -> dict[str, int]: ...

    def load(self, parameter: str) -> Tensor: ...


def iter_weights(
    path: Path,
    config: ModelConfig,
    load_format: str,
    progress: ProgressFn,
    device: torch.device = CPU,
) -> Iterator[tuple[str, Tensor]]:
    """(parameter, tensor) pairs: matrices [out, in] in fp32 or bf16, vectors in fp32. They are on
    the CPU, but for random ones, made on `device`: there that takes seconds instead of minutes.

    `path` and `config` are of `checkpoint`; `load_format` is auto, safetensors, gguf or dummy. The
    checkpoint is checked before this returns. Norm weights multiply as they are (Gemma's one is
    added); q and k are rotate-half.
    Raises: ConfigError for a format that the path does not have; CheckpointError for the files.
    """
    return _iterate(_source(path, config, load_format, device), progress)


def _source(
    path: Path, config: ModelConfig, load_format: str, device: torch.device
) -> WeightSource:
    found = "gguf" if is_gguf(path) else "safetensors"
    if load_format == "dummy":
        return DummyWeights.make(config, device=device)
    if load_format not in ("auto", found):
        raise ConfigError(
            f"load format {load_format!r} for {path}: expected auto, {found} or dummy there"
        )
    return (GgufWeights if found == "gguf" else SafetensorsWeights).open(path, config)


def _iterate(source: WeightSource, progress: ProgressFn) -> Iterator[tuple[str, Tensor]]:
    total = sum(source.sizes.values())
    done = 0
    for parameter, num_bytes in source.sizes.items():
        tensor = source.load(parameter)
        done += num_bytes
        progress(done, total, parameter)
        yield parameter, tensor
