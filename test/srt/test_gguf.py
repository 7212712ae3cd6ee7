"""The GGUF reader: what it reads, and that no damage makes it do anything but raise."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.srt.errors import CheckpointError
from treadle.srt.gguf import BLOCKS, GgmlType, GgufFile

HEADER = b"GGUF" + struct.pack("<I", 3)
QUANTISED = gguf.GGMLQuantizationType.Q8_0


def _write_sample(path: Path) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("x.u32", 7)
    writer.add_int64("x.i64", -7)
    writer.add_float32("x.f32", 0.5)
    writer.add_bool("x.bool", True)
    writer.add_string("x.text", "wëft")
    writer.add_array("x.words", ["a", "", "ünder"])
    writer.add_array("x.ints", [1, -2, 3])
    writer.add_array("x.flags", [True, False])
    writer.add_array("x.scores", [0.5, -1.5])
    writer.add_tensor("first", np.arange(6, dtype=np.float32).reshape(2, 3))
    rows = gguf.quants.quantize(np.ones((4, 64), dtype=np.float32), QUANTISED)
    writer.add_tensor("second", rows, raw_dtype=QUANTISED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "sample.gguf"
    _write_sample(path)
    return path


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "damaged.gguf"


def test_metadata_has_every_type(sample: Path):
    metadata = GgufFile.open(sample).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["x.u32"] == 7
    assert metadata["x.i64"] == -7
    assert metadata["x.f32"] == 0.5
    assert metadata["x.bool"] is True
    assert metadata["x.text"] == "wëft"
    assert metadata["x.words"] == ["a", "", "ünder"]
    assert metadata["x.ints"] == [1, -2, 3]
    assert metadata["x.flags"] == [True, False]
    assert metadata["x.scores"] == [0.5, -1.5]


def test_tensors_have_torch_order_and_their_bytes(sample: Path):
    file = GgufFile.open(sample)
    first, second = file.tensors["first"], file.tensors["second"]
    assert first.shape == (2, 3)
    data = file.buffer[first.offset : first.offset + first.num_bytes]
    assert np.frombuffer(data, dtype="<f4").tolist() == [0, 1, 2, 3, 4, 5]
    assert (second.shape, second.ggml_type) == ((4, 64), GgmlType.Q8_0)
    assert second.num_bytes == 4 * 2 * 34


def test_block_sizes_equal_the_gguf_package():
    for kind, sizes in BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] == sizes
        assert gguf.GGMLQuantizationType(kind).name == kind.name


def test_typed_access_names_key_and_kinds(sample: Path):
    file = GgufFile.open(sample)
    assert file.value("x.u32", int) == 7
    assert file.value("x.u32", float) == 7.0
    assert file.value("absent", int, 3) == 3
    assert file.values("x.words", str) == ["a", "", "ünder"]
    for read in (
        lambda: file.value("x.text", int),
        lambda: file.value("absent", int),
        lambda: file.value("x.bool", int),
        lambda: file.values("x.words", int),
        lambda: file.values("x.text", str),
    ):
        with pytest.raises(CheckpointError, match=r"sample\.gguf: key .* expected .* found"):
            read()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"GG", "first bytes"),
        (b"PK\3\4" + bytes(60), "first bytes"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version: expected 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (HEADER + struct.pack("<QQ", 1 << 60, 0), "tensor count"),
        (HEADER + struct.pack("<QQ", 0, 1 << 60), "key count"),
        (HEADER + struct.pack("<QQQ", 0, 1, 1 << 60) + bytes(64), "left"),
        (HEADER + struct.pack("<QQQ2sIIQ", 0, 1, 2, b"ab", 9, 4, 1 << 60) + bytes(64), "key ab"),
        (HEADER + struct.pack("<QQQ2sIQ", 0, 1, 2, b"ab", 8, 9) + bytes(8), "9 bytes, found 8"),
        (HEADER + struct.pack("<QQQ2sI", 0, 1, 2, b"ab", 99) + bytes(64), "type 99"),
        (HEADER + struct.pack("<QQQ2sI", 0, 1, 2, b"\xff\xff", 4) + bytes(64), "UTF-8"),
        (HEADER + struct.pack("<QQQ1sI", 0, 1, 1, b"a", 9) + struct.pack("<IQ", 9, 1) * 9, "nest"),
    ],
)  # fmt: skip
def test_hostile_headers_are_named(damaged: Path, data: bytes, message: str):
    damaged.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        GgufFile.open(damaged)
    assert str(damaged) in caught.value.message


def _tensor_file(
    dims: tuple[int, ...], kind: int, offset: int = 0, names: tuple[bytes, ...] = (b"t",)
) -> bytes:
    """Tensors that differ by name only, over 128 bytes of data."""
    head = HEADER + struct.pack("<QQ", len(names), 0)
    for name in names:
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
        head += struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    return head + bytes(-len(head) % 32) + bytes(128)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_tensor_file((33,), 0), "expected 132 bytes at byte 64"),
        (_tensor_file((1 << 62, 1 << 62), 0), "a file of"),
        (_tensor_file((4, 0), 0), "rows of a multiple"),
        (_tensor_file((16,), 8), "rows of a multiple of 32"),
        (_tensor_file((1,) * 5, 0), "1 to 4 dimensions"),
        (_tensor_file((256,), 23), "IQ4_XS"),
        (_tensor_file((256,), 77), "type 77"),
        (_tensor_file((4,), 0, offset=8), "aligned to 32"),
        (_tensor_file((4,), 0, offset=1 << 60), "a file of"),
        (_tensor_file((4,), 0, names=(b"t", b"t")), "one entry, found a second"),
        (_tensor_file((4,), 0, names=(b"t", b"u")), "data of its own, found an overlap"),
    ],
)
def test_hostile_tensor_entries_are_named(damaged: Path, data: bytes, message: str):
    damaged.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        GgufFile.open(damaged)
    assert str(damaged) in caught.value.message


def test_largest_tensor_that_fits_is_read(damaged: Path):
    damaged.write_bytes(_tensor_file((32,), 0))
    assert GgufFile.open(damaged).tensors["t"].num_bytes == 128


def test_absent_and_split_files_are_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="cannot be opened"):
        GgufFile.open(tmp_path / "absent.gguf")
    writer = gguf.GGUFWriter(tmp_path / "part.gguf", "llama")
    writer.add_uint16("split.count", 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="4 parts"):
        GgufFile.open(tmp_path / "part.gguf")


def _open_or_refuse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        file = GgufFile.open(path)
    except CheckpointError:
        return
    for tensor in file.tensors.values():
        assert 0 <= tensor.offset <= tensor.offset + tensor.num_bytes <= len(data)


def test_every_truncation_is_refused(sample: Path, damaged: Path):
    data = sample.read_bytes()
    last = max(x.offset + x.num_bytes for x in GgufFile.open(sample).tensors.values())
    for length in range(last):
        damaged.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            GgufFile.open(damaged)


FUZZ = settings(max_examples=300, suppress_health_check=list(HealthCheck))


@FUZZ
@given(edits=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), max_size=4))
def test_edited_bytes_open_or_are_refused(
    sample: Path, damaged: Path, edits: list[tuple[float, bytes]]
):
    data = bytearray(sample.read_bytes())
    for place, patch in edits:
        start = int(place * (len(data) - len(patch)))
        data[start : start + len(patch)] = patch
    _open_or_refuse(damaged, bytes(data))


@FUZZ
@given(data=st.binary(max_size=200))
def test_random_bytes_open_or_are_refused(damaged: Path, data: bytes):
    _open_or_refuse(damaged, HEADER + data)
