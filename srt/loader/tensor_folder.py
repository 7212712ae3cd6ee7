"""TensorFolder: the tensors of a folder of safetensors, with at most one of its files open.

A file is mapped while it is open, and read tensors count as memory of the process until it is
closed; so a checkpoint of many shards is read with one of them in memory beyond what was kept.
A tensor is a view of its file, which stays mapped as long as the view lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import CheckpointError
from .names import Shape

INDEX = "model.safetensors.index.json"


class TensorSlice(Protocol):
    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...


class TensorFile(Protocol):
    """The part of `safe_open` used here; the package itself is not annotated."""

    def keys(self) -> list[str]: ...

    def get_slice(self, name: str) -> TensorSlice: ...

    def get_tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a header says of a tensor; `dtype` in the format's own words."""

    file_name: str
    dtype: str
    shape: Shape


@dataclass(slots=True, eq=False)
class TensorFolder:
    """`stored` is read once from all headers."""

    folder: Path
    stored: Mapping[str, StoredTensor]
    _open_name: str = ""
    _open_file: TensorFile | None = None

    @classmethod
    def open(cls, folder: Path) -> TensorFolder:
        """Raises: CheckpointError for files missing or damaged, and for an index that they
        contradict."""
        if (folder / INDEX).is_file():
            return cls(folder, _sharded(folder))
        return cls(folder, _header(folder, _single(folder)))

    def tensor(self, name: str) -> Tensor:
        """As stored: a view of the mapped file. Closes the file that was open before."""
        file_name = self.stored[name].file_name
        if self._open_file is None or self._open_name != file_name:
            self._open_file = None  # first, so that never two are open
            self._open_file = open_file(self.folder / file_name)
            self._open_name = file_name
        return self._open_file.get_tensor(name)


def _single(folder: Path) -> str:
    files = sorted(x.name for x in folder.glob("*.safetensors"))
    if "model.safetensors" in files:
        return "model.safetensors"
    if len(files) != 1:
        raise CheckpointError(
            f"{folder}: expected model.safetensors or {INDEX}, found {len(files)} *.safetensors"
        )
    return files[0]


def _sharded(folder: Path) -> dict[str, StoredTensor]:
    path = folder / INDEX
    weight_map = _weight_map(path)
    held: dict[str, StoredTensor] = {}
    for file_name in sorted(set(weight_map.values())):
        if Path(file_name).name != file_name:  # an index must not lead out of its folder
            raise CheckpointError(f"{path}: expected plain file names, found {file_name!r}")
        for name, stored in _header(folder, file_name).items():
            _check_place(folder, name, file_name, weight_map)
            held[name] = stored
    for name, file_name in weight_map.items():
        if name not in held:
            raise CheckpointError(
                f"{folder / file_name}: tensor {name}: expected by {INDEX}, found no such tensor"
            )
    return held


def _check_place(folder: Path, name: str, file_name: str, weight_map: Mapping[str, str]) -> None:
    expected = weight_map.get(name)
    if expected is None:
        raise CheckpointError(
            f"{folder / file_name}: tensor {name}: expected only what {INDEX} lists,"
            " found this one too"
        )
    if expected != file_name:
        raise CheckpointError(
            f"{folder / expected}: tensor {name}: expected by {INDEX}, found in {file_name}"
        )


def _weight_map(path: Path) -> dict[str, str]:
    try:
        index = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path}: expected JSON: {error}") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{path}: weight_map: expected an object, found {weight_map!r}")
    return {name: str(file_name) for name, file_name in weight_map.items()}


def _header(folder: Path, file_name: str) -> dict[str, StoredTensor]:
    file = open_file(folder / file_name)
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    return {
        name: StoredTensor(file_name, x.get_dtype(), tuple(x.get_shape()))
        for name, x in slices.items()
    }


def open_file(path: Path) -> TensorFile:
    try:
        file: TensorFile = safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file: {error}") from None
    return file
