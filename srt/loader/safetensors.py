"""Weights of a Hugging Face folder: one `.safetensors` file, or shards with an index.

The file format itself is the `safetensors` package's; it checks headers and offsets. Tensors are
views of the mapped file until somebody converts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..model_config import ModelConfig
from .complete import check_complete
from .names import hf_names, is_hf_ignored, is_norm, parameter_shapes
from .tensor_folder import StoredTensor, TensorFolder

BYTES_BY_DTYPE = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class SafetensorsWeights:
    """`sizes` maps parameters, in the order of loading, to bytes in the files."""

    sizes: dict[str, int]
    names: dict[str, str]
    files: TensorFolder
    norm_plus_one: bool

    @classmethod
    def open(cls, folder: Path, config: ModelConfig) -> SafetensorsWeights:
        """Raises: CheckpointError for files or tensors missing, damaged, extra or mis-shaped."""
        files = TensorFolder.open(folder)
        wanted = {
            name: stored
            for name, stored in files.stored.items()
            if not is_hf_ignored(name, is_tied=config.tie_embeddings)
        }
        names = hf_names(config, wanted)
        shapes = {name: stored.shape for name, stored in wanted.items()}
        check_complete(folder, names, parameter_shapes(config), shapes)
        sizes = {p: _num_bytes(folder, n, wanted[n]) for p, n in names.items()}
        return cls(sizes, names, files, config.norm_plus_one)

    def load(self, parameter: str) -> Tensor:
        """fp32 or bf16 on the CPU; vectors are fp32, norm weights with Gemma's one added."""
        tensor = self.files.tensor(self.names[parameter])
        if tensor.dtype == torch.float16 or tensor.ndim == 1:
            tensor = tensor.float()
        return tensor + 1.0 if self.norm_plus_one and is_norm(parameter) else tensor


def _num_bytes(folder: Path, name: str, stored: StoredTensor) -> int:
    if stored.dtype not in BYTES_BY_DTYPE:
        raise CheckpointError(
            f"{folder}: tensor {name}: expected one of {', '.join(BYTES_BY_DTYPE)},"
            f" found {stored.dtype}"
        )
    return BYTES_BY_DTYPE[stored.dtype] * torch.Size(stored.shape).numel()
