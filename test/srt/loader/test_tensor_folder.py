"""Folders of safetensors: one open file at a time, and an index that its files agree with."""

from __future__ import annotations

import gc
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from treadle.srt.errors import CheckpointError
from treadle.srt.loader.tensor_folder import INDEX, TensorFolder


def write(folder: Path, files: dict[str, dict[str, Tensor]], **moved: str) -> Path:
    """`moved`: tensor -> the file that the index names instead of the one that holds it."""
    weight_map: dict[str, str] = {}
    for file_name, tensors in files.items():
        save_file(tensors, folder / file_name)
        weight_map |= dict.fromkeys(tensors, file_name)
    (folder / INDEX).write_bytes(orjson.dumps({"weight_map": weight_map | moved}))
    return folder


def shards(count: int) -> dict[str, dict[str, Tensor]]:
    """File `i` holds t`i` and s`i`."""
    return {
        f"{i}.safetensors": {f"{x}{i}": torch.full((2, 3), float(i)) for x in "ts"}
        for i in range(count)
    }


def mapped(folder: Path) -> set[str]:
    """Files of `folder` that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(x.split()[-1]).name for x in lines if str(folder) in x}


def test_headers_say_dtype_and_shape_and_leave_no_file_open(tmp_path: Path):
    folder = TensorFolder.open(write(tmp_path, shards(3)))
    assert {n: (x.file_name, x.dtype, x.shape) for n, x in folder.stored.items()} == {
        f"{x}{i}": (f"{i}.safetensors", "F32", (2, 3)) for i in range(3) for x in "st"
    }
    gc.collect()
    assert mapped(tmp_path) == set()


def test_at_most_one_file_is_open(tmp_path: Path):
    folder = TensorFolder.open(write(tmp_path, shards(4)))
    for name in ("t0", "t1", "t3", "t1", "t2"):
        assert folder.tensor(name)[0, 0] == int(name[1])
        assert mapped(tmp_path) == {f"{name[1]}.safetensors"}


def test_a_view_keeps_its_own_file_and_no_other(tmp_path: Path):
    folder = TensorFolder.open(write(tmp_path, shards(4)))
    kept = folder.tensor("t0")
    folder.tensor("t1")
    folder.tensor("t2")
    assert mapped(tmp_path) == {"0.safetensors", "2.safetensors"}
    assert kept[1, 2] == 0.0


def test_a_tensor_in_another_shard_than_the_index_says_is_refused(tmp_path: Path):
    with pytest.raises(
        CheckpointError, match=r"2\.safetensors: tensor t0: expected by .*, found in 0\.saf"
    ):
        TensorFolder.open(write(tmp_path, shards(3), t0="2.safetensors"))


def test_a_tensor_that_no_shard_holds_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"1\.safetensors: tensor odd: .* no such tensor"):
        TensorFolder.open(write(tmp_path, shards(2), odd="1.safetensors"))


def test_a_tensor_that_the_index_does_not_list_is_refused(tmp_path: Path):
    write(tmp_path, shards(2))
    save_file({"t1": torch.zeros(1), "odd": torch.zeros(1)}, tmp_path / "1.safetensors")
    with pytest.raises(CheckpointError, match=r"1\.safetensors: tensor odd: .* found this one too"):
        TensorFolder.open(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path):
    write(tmp_path, shards(2))
    (tmp_path / "1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"1\.safetensors: expected a safetensors file"):
        TensorFolder.open(tmp_path)


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_a_cut_shard_is_named(tmp_path: Path, cut: int):
    path = write(tmp_path, shards(2)) / "1.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"1\.safetensors: expected a safetensors file"):
        TensorFolder.open(tmp_path)
