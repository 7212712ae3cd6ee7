"""PackedWeights: the tensors of a DeepSeek-V4.1 folder, one at a time, in the form a model keeps.

What is returned is a copy, but for `raw`: tables stay in the mapped file, where they cost memory
only as rows are read, and processes that map the same file share its pages. Packed FP4 and e8m0 are
raw bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PackedMatrix

from ..errors import CheckpointError
from ..model_config import ModelConfig
from .complete import listed
from .deepseek_v41_tensors import VISION, TensorSpec, tensor_specs
from .tensor_folder import StoredTensor, TensorFolder
from .weights import ProgressFn

RAW = (torch.int8, torch.float8_e8m0fnu)


class Weights(Protocol):
    """Where a builder takes tensors from: files, or shapes alone (`meta.py`)."""

    def made(self, layer: int, num_layers: int) -> None: ...

    def raw(self, name: str) -> Tensor: ...

    def dense(self, name: str) -> Tensor: ...

    def scaled(self, *names: str) -> PackedMatrix: ...

    def stacked(self, names: Sequence[Sequence[str]]) -> Tensor: ...


def _silent(done: int, total: int, label: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    specs: Mapping[str, TensorSpec]
    files: TensorFolder
    report: ProgressFn = _silent

    @classmethod
    def open(
        cls, folder: Path, config: ModelConfig, progress: ProgressFn = _silent
    ) -> PackedWeights:
        """Raises: CheckpointError for tensors missing, extra, mis-shaped or of another dtype."""
        files = TensorFolder.open(folder)
        specs = tensor_specs(config)
        found = {name: x for name, x in files.stored.items() if not name.startswith(VISION)}
        _same_names(folder, specs, found)
        for name, spec in specs.items():
            stored = found[name]
            if stored.shape != spec.shape or stored.dtype not in spec.dtypes:
                raise CheckpointError(
                    f"{folder}: tensor {name}: expected {' or '.join(spec.dtypes)}"
                    f" {list(spec.shape)}, found {stored.dtype} {list(stored.shape)}"
                )
        return cls(specs, files, progress)

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
        """As stored, in the mapped file; packed FP4 and e8m0 as uint8."""
        tensor = self.files.tensor(name)
        return tensor.view(torch.uint8) if tensor.dtype in RAW else tensor

    def dense(self, name: str) -> Tensor:
        """A bf16 or fp32 tensor, in fp32."""
        return self.raw(name).to(torch.float32, copy=True)

    def scaled(self, *names: str) -> PackedMatrix:
        """FP8 weights with their tile scales, joined along outputs."""
        return ops.join_packed([self._packed(name) for name in names])

    def stacked(self, names: Sequence[Sequence[str]]) -> Tensor:
        """Packed bytes, uint8 [len(names), ..]: each item is its tensors joined along outputs, all
        items have one shape. One tensor at a time is held beside the result."""
        out = torch.empty(stacked_shape(self.specs, names), dtype=torch.uint8)
        for item, parts in zip(out, names, strict=True):
            first = 0
            for name in parts:
                last = first + self.specs[name].shape[0]
                item[first:last] = self.raw(name)
                first = last
        return out

    def _packed(self, name: str) -> PackedMatrix:
        scale = self.raw(f"{name}.scale").clone()  # lest two files be open, were it in another
        return ops.pack_fp8(self.raw(f"{name}.weight"), scale)


def stacked_shape(
    specs: Mapping[str, TensorSpec], names: Sequence[Sequence[str]]
) -> tuple[int, ...]:
    """Of `Weights.stacked`."""
    shapes = [specs[name].shape for name in names[0]]
    return (len(names), sum(shape[0] for shape in shapes), *shapes[0][1:])


def _same_names(
    folder: Path, specs: Mapping[str, TensorSpec], found: Mapping[str, StoredTensor]
) -> None:
    missing = [name for name in specs if name not in found]
    extra = [name for name in found if name not in specs]
    for what, names in (("none by this name", missing), ("one that the model lacks", extra)):
        if names:
            raise CheckpointError(
                f"{folder}: tensor {listed(names)}: expected the {len(specs)} tensors of the model,"
                f" found {what} ({len(names)} such)"
            )
