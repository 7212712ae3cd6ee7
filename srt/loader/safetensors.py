"""Weights of a Hugging Face folder: one `.safetensors` file, or shards with an index.

The file format itself is the `safetensors` package's; it checks headers and offsets. Tensors are
views of the mapped file until somebody converts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import CheckpointError
from ..model_config import ModelConfig
from .complete import check_complete
from .names import Shape, hf_names, is_hf_ignored, is_norm, parameter_shapes

INDEX = "model.safetensors.index.json"
BYTES_BY_DTYPE = {"F32": 4, "F16": 2, "BF16": 2}


class TensorSlice(Protocol):
    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...


class TensorFile(Protocol):
    """The part of `safe_open` used here; the package itself is not annotated."""

    def keys(self) -> list[str]: ...

    def get_slice(self, name: str) -> TensorSlice: ...

    def get_tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class SafetensorsWeights:
    """`sizes` maps parameters, in the order of loading, to bytes in the files."""

    sizes: dict[str, int]
    names: dict[str, str]
    shards: dict[str, TensorFile]  # tensor name -> open file
    norm_plus_one: bool

    @classmethod
    def open(cls, folder: Path, config: ModelConfig) -> SafetensorsWeights:
        """Raises: CheckpointError for files or tensors missing, damaged, extra or mis-shaped."""
        shards = open_tensors(folder)
        wanted = {
            name: shard
            for name, shard in shards.items()
            if not is_hf_ignored(name, is_tied=config.tie_embeddings)
        }
        names = hf_names(config, wanted)
        expected = parameter_shapes(config)
        shapes: dict[str, Shape] = {
            name: tuple(shard.get_slice(name).get_shape()) for name, shard in wanted.items()
        }
        check_complete(folder, names, expected, shapes)
        sizes = {p: _num_bytes(folder, wanted[n], n, expected[p]) for p, n in names.items()}
        return cls(sizes, names, wanted, config.norm_plus_one)

    def load(self, parameter: str) -> Tensor:
        """fp32 or bf16 on the CPU; vectors are fp32, norm weights with Gemma's one added."""
        name = self.names[parameter]
        tensor = self.shards[name].get_tensor(name)
        if tensor.dtype == torch.float16 or tensor.ndim == 1:
            tensor = tensor.float()
        return tensor + 1.0 if self.norm_plus_one and is_norm(parameter) else tensor


def open_tensors(folder: Path) -> dict[str, TensorFile]:
    if (folder / INDEX).is_file():
        return _open_shards(folder)
    files = sorted(folder.glob("*.safetensors"))
    single = folder / "model.safetensors"
    if single not in files and len(files) != 1:
        raise CheckpointError(
            f"{folder}: expected model.safetensors or {INDEX}, found {len(files)} *.safetensors"
        )
    shard = _open_file(single if single in files else files[0])
    return dict.fromkeys(shard.keys(), shard)


def _open_shards(folder: Path) -> dict[str, TensorFile]:
    path = folder / INDEX
    try:
        index = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path}: expected JSON: {error}") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{path}: weight_map: expected an object, found {weight_map!r}")
    shards: dict[str, TensorFile] = {}
    for file_name in sorted({str(x) for x in weight_map.values()}):
        if Path(file_name).name != file_name:  # an index must not lead out of its folder
            raise CheckpointError(f"{path}: expected plain file names, found {file_name!r}")
        shards[file_name] = _open_file(folder / file_name)
    held = {file_name: set(shard.keys()) for file_name, shard in shards.items()}
    for name, file_name in weight_map.items():
        if name not in held[str(file_name)]:
            raise CheckpointError(
                f"{folder / str(file_name)}: tensor {name}: expected by {INDEX},"
                " found no such tensor"
            )
    return {name: shards[str(file_name)] for name, file_name in weight_map.items()}


def _open_file(path: Path) -> TensorFile:
    try:
        file: TensorFile = safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file: {error}") from None
    return file


def _num_bytes(folder: Path, shard: TensorFile, name: str, shape: Shape) -> int:
    dtype = shard.get_slice(name).get_dtype()
    if dtype not in BYTES_BY_DTYPE:
        raise CheckpointError(
            f"{folder}: tensor {name}: expected one of {', '.join(BYTES_BY_DTYPE)}, found {dtype}"
        )
    return BYTES_BY_DTYPE[dtype] * torch.Size(shape).numel()
