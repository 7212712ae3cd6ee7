"""PackedWeights: the tensors of a DeepSeek-V4.1 folder, as stored, one at a time.

Files are mapped: a tensor costs memory only where it is read, and processes that map the same file
share its pages. Nothing is unpacked here but on request; e8m0 and packed FP4 are raw bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from treadle.kernels import ops

from ..errors import CheckpointError
from ..model_config import ModelConfig
from .deepseek_v41_tensors import VISION, TensorSpec, tensor_specs
from .safetensors import TensorFile, open_tensors

Progress = Callable[[int, int, str], None]  # bytes done, bytes in all, layer just made

RAW = (torch.int8, torch.float8_e8m0fnu)
MAX_NAMED = 3


def _silent(done: int, total: int, label: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    specs: Mapping[str, TensorSpec]
    shards: Mapping[str, TensorFile]
    report: Progress = _silent

    @classmethod
    def open(cls, folder: Path, config: ModelConfig, progress: Progress = _silent) -> PackedWeights:
        """Raises: CheckpointError for tensors missing, extra, mis-shaped or of another dtype."""
        shards = open_tensors(folder)
        specs = tensor_specs(config)
        wanted = {name: x for name, x in shards.items() if not name.startswith(VISION)}
        _same_names(folder, specs, wanted)
        for name, spec in specs.items():
            piece = wanted[name].get_slice(name)
            shape, dtype = tuple(piece.get_shape()), piece.get_dtype()
            if shape != spec.shape or dtype not in spec.dtypes:
                raise CheckpointError(
                    f"{folder}: tensor {name}: expected {' or '.join(spec.dtypes)}"
                    f" {list(spec.shape)}, found {dtype} {list(shape)}"
                )
        return cls(specs, wanted, progress)

    @property
    def num_bytes(self) -> int:
        """Of all tensors in the files."""
        sizes = {"F32": 4, "BF16": 2}
        return sum(
            math.prod(spec.shape) * sizes.get(spec.dtypes[0], 1) for spec in self.specs.values()
        )

    def made(self, layer: int, num_layers: int) -> None:
        """Reports `layer`, from 0, as read: layers count alike, as their sizes hardly differ."""
        total = self.num_bytes
        self.report(total * (layer + 1) // num_layers, total, f"layers.{layer}")

    def raw(self, name: str) -> Tensor:
        """As stored; packed FP4 and e8m0 as uint8."""
        tensor = self.shards[name].get_tensor(name)
        return tensor.view(torch.uint8) if tensor.dtype in RAW else tensor

    def dense(self, name: str) -> Tensor:
        """A bf16 or fp32 tensor, in fp32."""
        return self.raw(name).float()

    def scaled(self, *names: str) -> Tensor:
        """FP8 weights with their tile scales, dequantised to fp32 and joined along outputs."""
        parts = [ops.fp8_tiles(self.raw(f"{x}.weight"), self.raw(f"{x}.scale")) for x in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _same_names(
    folder: Path, specs: Mapping[str, TensorSpec], found: Mapping[str, TensorFile]
) -> None:
    missing = [name for name in specs if name not in found]
    extra = [name for name in found if name not in specs]
    for what, names in (("none by this name", missing), ("one that the model lacks", extra)):
        if names:
            listed = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
            raise CheckpointError(
                f"{folder}: tensor {listed}: expected the {len(specs)} tensors of the model,"
                f" found {what} ({len(names)} such)"
            )
