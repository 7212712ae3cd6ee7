"""GGUF files (versions 2 and 3, little-endian): header, metadata and tensor index; no torch.

Owns the container format only. What the keys mean is `gguf_config.py`; bytes become tensors in
`loader/gguf_tensors.py`. The tokenizer and scheduler processes read metadata through this file.

    magic "GGUF" | u32 version | u64 tensors | u64 keys
    keys:    string name | u32 type | value               (string: u64 length, UTF-8)
    tensors: string name | u32 dims | u64 dim * dims (innermost first) | u32 type | u64 offset
    padding to `general.alignment` | tensor data, each at data start + offset

Invariants: nothing is read past the end of the file; no count or length of the file is believed
before it was compared with the bytes that are left, so memory is linear in the file's size. Every
defect is a CheckpointError that names file, place, expected and found.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from .errors import CheckpointError

T = TypeVar("T", bool, int, float, str)

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # bytes, when `general.alignment` is absent
MAX_ALIGNMENT = 1 << 16
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_NESTING = 4  # of arrays in metadata
MIN_KEY_BYTES = 8 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


class GgmlType(IntEnum):
    """Storage types that this build reads."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30

    @property
    def is_block_quantised(self) -> bool:
        return self not in (GgmlType.F32, GgmlType.F16, GgmlType.BF16)


BLOCKS: dict[GgmlType, tuple[int, int]] = {  # (elements, bytes) of a block
    GgmlType.F32: (1, 4),
    GgmlType.F16: (1, 2),
    GgmlType.Q4_0: (32, 18),
    GgmlType.Q4_1: (32, 20),
    GgmlType.Q5_0: (32, 22),
    GgmlType.Q5_1: (32, 24),
    GgmlType.Q8_0: (32, 34),
    GgmlType.Q4_K: (256, 144),
    GgmlType.Q5_K: (256, 176),
    GgmlType.Q6_K: (256, 210),
    GgmlType.BF16: (1, 2),
}
UNREAD_TYPES = {  # known by name only, for the message
    10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

BOOL, STRING, ARRAY = 7, 8, 9
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    BOOL: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`shape` is in torch order (outermost first); `offset` counts bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    ggml_type: GgmlType
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open file. `buffer` maps it privately; nobody writes to it, and views keep it alive."""

    path: Path
    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]
    buffer: mmap.mmap

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Raises: CheckpointError when the file is absent, cut, hostile or of an unread type."""
        buffer = _map(path)
        reader = _Reader(path, buffer)
        num_tensors, num_keys = reader.header()
        metadata = reader.metadata(num_keys)
        split = metadata.get("split.count", 1)
        if split not in (0, 1):
            raise reader.error("key split.count", "a file that is not split", f"{split} parts")
        tensors = reader.tensor_index(num_tensors, metadata)
        return cls(path=path, metadata=metadata, tensors=tensors, buffer=buffer)

    def value(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A scalar of the metadata as `kind`. Raises: CheckpointError when absent or of another."""
        found = self.metadata.get(key, default)
        if kind is float and type(found) is int:
            return kind(found)
        if type(found) is not kind:
            raise CheckpointError(
                f"{self.path}: key {key}: expected {kind.__name__}, {_say(found)}"
            )
        return found

    def values(self, key: str, kind: type[T]) -> list[T]:
        """An array of the metadata. Raises: CheckpointError when absent or of other elements."""
        found = self.metadata.get(key)
        if not isinstance(found, list) or not all(type(x) is kind for x in found[:1]):
            raise CheckpointError(
                f"{self.path}: key {key}: expected an array of {kind.__name__}, {_say(found)}"
            )
        return found


def _say(found: object) -> str:
    if found is None:
        return "found nothing"
    if isinstance(found, list):
        return f"found an array of {len(found)} {type(found[0]).__name__ if found else ''}".rstrip()
    return f"found {found!r}"


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            # A copy-on-write mapping: torch wants a writable buffer and warns of any other.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except ValueError:  # mmap refuses an empty file
        raise CheckpointError(f"{path}: expected a GGUF file, found an empty file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be opened: {error.strerror}") from None


class _Reader:
    """A position in the file that only moves forward and never past the end."""

    __slots__ = ("buffer", "end", "path", "position")

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.position = 0
        self.end = len(buffer)

    def error(self, what: str, expected: str, found: object) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}: expected {expected}, found {found}")

    def header(self) -> tuple[int, int]:
        magic = self.buffer[:4]
        if magic != MAGIC:
            raise self.error("first bytes", repr(MAGIC), repr(magic))
        self.position = 4
        version = self.number("I", "version")
        if version not in VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big") in VERSIONS
            found = "a big-endian file" if swapped else version
            raise self.error("version", "2 or 3, little-endian", found)
        num_tensors = self.count("tensor count", MIN_TENSOR_BYTES)
        return num_tensors, self.count("key count", MIN_KEY_BYTES)

    def number(self, code: str, what: str) -> int:
        value = self.scalar(code, what)
        assert isinstance(value, int)
        return value

    def scalar(self, code: str, what: str) -> int | float | bool:
        form = struct.Struct("<" + code)
        self.need(form.size, what)
        (value,) = form.unpack_from(self.buffer, self.position)
        self.position += form.size
        result: int | float | bool = value
        return result

    def need(self, num_bytes: int, what: str) -> None:
        if num_bytes > self.end - self.position:
            raise self.error(
                f"{what} at byte {self.position}",
                f"{num_bytes} bytes",
                f"{self.end - self.position} left in the file",
            )

    def count(self, what: str, min_bytes: int) -> int:
        """A count of items of at least `min_bytes` each, all of which must fit in what is left."""
        count = self.number("Q", what)
        self.need(count * min_bytes, f"{what} {count}")
        return count

    def strings(self, count: int, what: str) -> list[str]:
        """The one hot loop of opening a file: a vocabulary has 10^5 strings."""
        buffer, position, end = self.buffer, self.position, self.end
        length_of = struct.Struct("<Q").unpack_from
        found: list[str] = []
        for _ in range(count):
            if end - position < 8:
                raise self.error(f"{what} at byte {position}", "a string", "the end of the file")
            (length,) = length_of(buffer, position)
            position += 8
            if length > end - position:
                raise self.error(
                    f"{what} at byte {position}", f"{length} bytes", f"{end - position} left"
                )
            try:
                found.append(buffer[position : position + length].decode())
            except UnicodeDecodeError as error:
                raise self.error(f"{what} at byte {position}", "UTF-8", error.reason) from None
            position += length
        self.position = position
        return found

    def metadata(self, count: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for index in range(count):
            (key,) = self.strings(1, f"key {index}")
            if key in found:
                raise self.error(f"key {key}", "one value", "a second value")
            found[key] = self.metadata_value(self.number("I", f"key {key}"), f"key {key}", 0)
        return found

    def metadata_value(self, kind: int, what: str, depth: int) -> object:
        if kind == STRING:
            return self.strings(1, what)[0]
        if kind == ARRAY:
            return self.array(what, depth)
        if kind not in SCALARS:
            raise self.error(what, "a type from 0 to 12", f"type {kind}")
        return self.scalar(SCALARS[kind], what)

    def array(self, what: str, depth: int) -> list[object]:
        if depth == MAX_NESTING:
            raise self.error(what, f"arrays nested at most {MAX_NESTING} deep", "more")
        kind = self.number("I", what)
        if kind == STRING:
            strings: list[object] = list(self.strings(self.count(what, 8), what))
            return strings
        if kind == ARRAY:
            return [self.array(what, depth + 1) for _ in range(self.count(what, 12))]
        if kind not in SCALARS:
            raise self.error(what, "an element type from 0 to 12", f"type {kind}")
        count = self.count(what, struct.calcsize("<" + SCALARS[kind]))
        form = struct.Struct(f"<{count}{SCALARS[kind]}")
        numbers = form.unpack_from(self.buffer, self.position)
        self.position += form.size
        return list(numbers)

    def tensor_index(self, count: int, metadata: dict[str, object]) -> dict[str, GgufTensor]:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 8 <= alignment <= MAX_ALIGNMENT or alignment % 8:
            raise self.error("key general.alignment", "a multiple of 8", repr(alignment))
        found = [self.tensor(index, alignment) for index in range(count)]
        data_start = -(-self.position // alignment) * alignment
        placed: dict[str, GgufTensor] = {}
        free_from = data_start
        for tensor in sorted(found, key=lambda x: x.offset):
            offset = data_start + tensor.offset
            if tensor.name in placed:
                raise self.error(f"tensor {tensor.name}", "one entry", "a second entry")
            if offset < free_from:
                raise self.error(f"tensor {tensor.name}", "data of its own", "an overlap")
            free_from = offset + tensor.num_bytes
            if free_from > self.end:
                raise self.error(
                    f"tensor {tensor.name}",
                    f"{tensor.num_bytes} bytes at byte {offset}",
                    f"a file of {self.end} bytes",
                )
            placed[tensor.name] = replace(tensor, offset=offset)
        return placed

    def tensor(self, index: int, alignment: int) -> GgufTensor:
        """One entry of the index; its offset is still relative to the start of the data."""
        (name,) = self.strings(1, f"name of tensor {index}")
        what = f"tensor {name}"
        num_dims = self.number("I", what)
        if not 1 <= num_dims <= MAX_DIMS:
            raise self.error(what, f"1 to {MAX_DIMS} dimensions", num_dims)
        dims = [self.number("Q", what) for _ in range(num_dims)]
        kind = self.number("I", what)
        offset = self.number("Q", what)
        if kind not in GgmlType.__members__.values():
            supported = ", ".join(x.name for x in GgmlType)
            raise self.error(what, f"one of {supported}", UNREAD_TYPES.get(kind, f"type {kind}"))
        block, block_bytes = BLOCKS[GgmlType(kind)]
        if min(dims) < 1 or dims[0] % block:
            raise self.error(what, f"rows of a multiple of {block} elements", f"dimensions {dims}")
        if offset % alignment:
            raise self.error(what, f"an offset aligned to {alignment}", offset)
        num_bytes = math.prod(dims) // block * block_bytes
        return GgufTensor(name, tuple(dims[::-1]), GgmlType(kind), offset, num_bytes)
