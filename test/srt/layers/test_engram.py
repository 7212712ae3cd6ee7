"""Engram tables are the pages of the checkpoint, shared by the processes that read them."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from treadle.kernels import ops
from treadle.srt.layers.engram import EngramTable
from treadle.srt.loader.tensor_folder import TensorFolder

ROWS, WIDTH = 1 << 16, 256
TABLE_BYTES = ROWS * WIDTH
KILO = 1024


def write(folder: Path) -> None:
    codes = torch.arange(TABLE_BYTES, dtype=torch.int32).remainder(120).to(torch.uint8)
    tensors = {
        "codes": codes.view(ROWS, WIDTH).view(torch.float8_e4m3fn),
        "scales": torch.full((ROWS, WIDTH // 32), 127, dtype=torch.uint8),
    }
    save_file(tensors, folder / "model.safetensors")


def open_table(folder: Path) -> EngramTable:
    files = TensorFolder.open(folder)
    return EngramTable(files.tensor("codes"), files.tensor("scales"))


def test_rows_are_dequantised_as_they_are_read(tmp_path):
    write(tmp_path)
    table = open_table(tmp_path)
    rows = torch.tensor([[5, ROWS - 1], [0, 5]])
    assert torch.equal(table.read(rows), ops.fp8_dequantize(table.codes, table.scales)[rows])


def mapping_sizes(path: str) -> list[dict[str, int]]:
    """Bytes by kind of every mapping of `path` in this process."""
    found: list[dict[str, int]] = []
    is_in = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_in = line.endswith(path)
            found += [{}] if is_in else []
        elif is_in and words[-1] == "kB":
            found[-1][words[0][:-1]] = int(words[1]) * KILO
    return found


def anonymous_bytes() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(x.split()[1]) for x in rollup if x.startswith("Anonymous:")) * KILO


def read_all(folder: Path, pipe: Connection) -> None:
    """In a process of its own: reads every row, waits for the other to have done so, measures."""
    torch.set_num_threads(1)
    before = anonymous_bytes()
    table = open_table(folder)
    for first in range(0, ROWS, 512):
        table.read(torch.arange(first, first + 512))
    pipe.send("read")
    pipe.recv()
    pipe.send((anonymous_bytes() - before, mapping_sizes(str(folder / "model.safetensors"))))
    pipe.recv()  # until the other has measured, too


@pytest.mark.skipif(not os.access("/proc/self/smaps_rollup", os.R_OK), reason="needs smaps")
def test_two_processes_that_read_a_whole_table_hold_its_pages_once(tmp_path):
    write(tmp_path)
    with (tmp_path / "model.safetensors").open("rb") as file:
        os.fsync(file.fileno())
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    readers = [context.Process(target=read_all, args=(tmp_path, theirs)) for _, theirs in pipes]
    for reader in readers:
        reader.start()
    ours = [mine for mine, _ in pipes]
    assert [x.recv() for x in ours] == ["read", "read"]
    for x in ours:
        x.send("measure")
    measured = [x.recv() for x in ours]
    for x in ours:
        x.send("end")
    for reader in readers:
        reader.join()
    for grown, mappings in measured:
        assert len(mappings) == 1, "mapped once"
        sizes = mappings[0]
        assert sizes["Shared_Clean"] + sizes["Shared_Dirty"] >= TABLE_BYTES
        assert sizes["Private_Clean"] + sizes["Private_Dirty"] < TABLE_BYTES / 16
        assert grown < TABLE_BYTES / 2  # some of it is torch's own
