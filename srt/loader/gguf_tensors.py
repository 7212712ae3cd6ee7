"""Tensors of a GGUF file: bytes as they lie, and expanded to float32 in our layout.

llama.cpp's converter reorders the rows of q and k of architecture "llama" for its interleaved rope
(pairs 2i, 2i+1 of a head); models here rotate halves (i, i + D/2), so the rows are put back. That
is done on the block-quantised rows, before expanding. Other architectures are stored rotate-half.

    file row of a head   0  1  2  3  4  5 ..         row j of the head in our order lies at
    our row              0 D/2 1 D/2+1 2 D/2+2 ..    2 * (j mod D/2) + j div (D/2)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from treadle.kernels.ops import dequantize

from ..gguf import GgufFile
from ..model_config import ModelConfig
from .complete import check_complete
from .names import gguf_names, parameter_shapes, split_layer

ROPE_FREQS = "rope_freqs.weight"  # read with the metadata
CHUNK_ELEMENTS = 1 << 17  # expanded at once: 512 KiB, so that temporaries stay in the cache


def raw(file: GgufFile, name: str) -> Tensor:
    """The bytes of a tensor, flat uint8: a view of the mapped file, not to be written to."""
    tensor = file.tensors[name]
    return torch.frombuffer(
        file.buffer, dtype=torch.uint8, count=tensor.num_bytes, offset=tensor.offset
    )


@dataclass(frozen=True, slots=True)
class GgufWeights:
    """`sizes` maps parameters, in the order of loading, to bytes in the file."""

    sizes: dict[str, int]
    names: dict[str, str]
    file: GgufFile
    config: ModelConfig
    is_interleaved: bool

    @classmethod
    def open(cls, path: Path, config: ModelConfig) -> GgufWeights:
        """Raises: CheckpointError when the file is damaged or its tensors are not the model's."""
        file = GgufFile.open(path)
        names = gguf_names(config)
        found = {x.name: x.shape for x in file.tensors.values() if x.name != ROPE_FREQS}
        check_complete(path, names, parameter_shapes(config), found)
        sizes = {p: file.tensors[n].num_bytes for p, n in names.items()}
        is_interleaved = file.value("general.architecture", str) == "llama"
        return cls(sizes, names, file, config, is_interleaved)

    def load(self, parameter: str) -> Tensor:
        """fp32 on the CPU, rows in our order."""
        tensor = self.file.tensors[self.names[parameter]]
        rows = raw(self.file, tensor.name).view(tensor.shape[0], -1)
        heads = self._rotated_heads(parameter)
        if heads:
            rows = rows[rotate_half_order(heads, self.config.head_dim)]
        with _one_thread():
            return _expand(rows, tensor.ggml_type, tensor.shape)

    def _rotated_heads(self, parameter: str) -> int:
        """Heads whose rows must be put back; 0 for parameters that rope does not touch."""
        _, part = split_layer(parameter)
        if not self.is_interleaved:
            return 0
        heads = {"q": self.config.num_heads, "k": self.config.num_kv_heads}
        return heads.get(part.removesuffix("_bias"), 0)


def rotate_half_order(num_heads: int, head_dim: int) -> Tensor:
    """int64 [heads * D]: the row of the file for every row of ours."""
    rows = torch.arange(num_heads * head_dim).view(num_heads, head_dim // 2, 2)
    return rows.transpose(1, 2).reshape(-1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch's operators on this thread alone.

    Expanding is many operators of a millisecond, each with a barrier of threads that spin: with
    all cores busy elsewhere, two threads took 11 to 50 s for the 250 MB of Gemma 3, one 2 to 9.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _expand(rows: Tensor, ggml_type: int, shape: tuple[int, ...]) -> Tensor:
    """Shapes: rows [out, bytes of a row] uint8, contiguous."""
    num_rows = rows.shape[0]
    row_elements = torch.Size(shape[1:]).numel()
    step = max(CHUNK_ELEMENTS // row_elements, 1)
    if num_rows <= step:
        return dequantize(rows.reshape(-1), ggml_type, num_rows * row_elements).view(shape)
    out = torch.empty(num_rows, row_elements, dtype=torch.float32)
    for start in range(0, num_rows, step):
        part = rows[start : start + step]
        count = part.shape[0] * row_elements
        out[start : start + step] = dequantize(part.reshape(-1), ggml_type, count).view(
            -1, row_elements
        )
    return out.view(shape)
