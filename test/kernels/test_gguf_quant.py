"""GGUF blocks against the format's own numpy implementation, on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from treadle.kernels.ops import dequantize
from treadle.kernels.reference.gguf_quant import BLOCK_FORMATS


def random_blocks(ggml_type: int, count: int) -> np.ndarray:
    """Random bytes, with every float16 that a block holds replaced by a finite one."""
    rng = np.random.default_rng(ggml_type)
    block = BLOCK_FORMATS[ggml_type]
    if block.num_weights == 1:
        values = rng.standard_normal(count, dtype=np.float32)
        return (
            gguf.quantize(values, gguf.GGMLQuantizationType(ggml_type)).view(np.uint8).reshape(-1)
        )
    raw = rng.integers(0, 256, (count, block.num_bytes), dtype=np.uint8)
    halves = rng.standard_normal((count, 2)).astype(np.float16).view(np.uint8)
    if block.name == "Q6_K":
        raw[:, 208:] = halves[:, :2]
    else:
        wide = 4 if block.name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else 2
        raw[:, :wide] = halves[:, :wide]
    return raw.reshape(-1)


@pytest.mark.parametrize("ggml_type", BLOCK_FORMATS, ids=lambda t: BLOCK_FORMATS[t].name)
@pytest.mark.parametrize("count", [1, 37])
def test_every_type_equals_the_formats_own_implementation(ggml_type, count):
    block = BLOCK_FORMATS[ggml_type]
    raw = random_blocks(ggml_type, count)
    want = gguf.dequantize(raw, gguf.GGMLQuantizationType(ggml_type)).reshape(-1)
    got = dequantize(torch.from_numpy(raw), ggml_type, count * block.num_weights)
    assert got.dtype is torch.float32
    np.testing.assert_array_equal(got.numpy(), want)


def test_sizes_agree_with_the_formats_own_table():
    for ggml_type, block in BLOCK_FORMATS.items():
        kind = gguf.GGMLQuantizationType(ggml_type)
        assert kind.name == block.name
        assert gguf.GGML_QUANT_SIZES[kind] == (block.num_weights, block.num_bytes)


def test_raw_bytes_are_not_aliased():
    raw = torch.zeros(8, dtype=torch.uint8)
    values = dequantize(raw, 0, 2)
    raw.fill_(255)
    assert values.tolist() == [0.0, 0.0]


def test_bad_input_is_refused():
    raw = torch.zeros(34, dtype=torch.uint8)
    with pytest.raises(ValueError, match="type 99"):
        dequantize(raw, 99, 32)
    with pytest.raises(ValueError, match="34 bytes of Q8_0"):
        dequantize(raw, 8, 64)
    with pytest.raises(ValueError, match="do not hold 33"):
        dequantize(raw, 8, 33)
    with pytest.raises(ValueError, match="flat contiguous uint8"):
        dequantize(raw.float(), 8, 32)
