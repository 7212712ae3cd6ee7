"""GGUF tensor data -> float32, block by block, as a specification in torch.

Owns the block layouts (Source: the block structs and `dequantize_row_*` of ggml's `ggml-quants.c`)
and nothing of the file around them. A block holds 32 or 256 consecutive weights of one row. Nibbles
lie in halves: the low ones of a run of bytes are the first weights, the high ones the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Weights and bytes of a block, and how `[blocks, bytes]` uint8 become `[blocks, weights]`."""

    name: str
    num_weights: int
    num_bytes: int
    expand: Callable[[Tensor], Tensor]


def dequantize(raw: Tensor, ggml_type: int, num_elements: int) -> Tensor:
    """Expand the bytes of one tensor to flat float32 `[num_elements]`.

    Shapes: raw uint8 `[bytes]`, contiguous; `ggml_type` is the type number of the GGUF tensor
    table.
    Raises `ValueError` for an unknown type, or when bytes and elements do not agree.
    """
    block = block_format(raw, ggml_type, num_elements)
    return block.expand(raw.view(-1, block.num_bytes)).reshape(num_elements)


def block_format(raw: Tensor, ggml_type: int, num_elements: int) -> BlockFormat:
    """Look up and check the format of a tensor's bytes.

    Raises `ValueError` as `dequantize` does.
    """
    block = BLOCK_FORMATS.get(ggml_type)
    if block is None:
        known = ", ".join(f"{number} ({item.name})" for number, item in BLOCK_FORMATS.items())
        raise ValueError(f"GGML type {ggml_type} is not supported; supported are {known}")
    if raw.dtype != torch.uint8 or raw.dim() != 1 or not raw.is_contiguous():
        raise ValueError(f"raw must be flat contiguous uint8, not {raw.dtype} {tuple(raw.shape)}")
    num_blocks, rest = divmod(num_elements, block.num_weights)
    if rest or num_blocks * block.num_bytes != raw.numel():
        raise ValueError(f"{raw.numel()} bytes of {block.name} do not hold {num_elements} weights")
    return block


def _f32(blocks: Tensor) -> Tensor:
    return blocks.clone().view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return blocks.clone().view(torch.float16).float()


def _bf16(blocks: Tensor) -> Tensor:
    return blocks.clone().view(torch.bfloat16).float()


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float() * _half(blocks, 0)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 6:]) + 16 * _bits(blocks[:, 2:6]) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    quants = _nibbles(blocks[:, 8:]) + 16 * _bits(blocks[:, 4:8])
    return _half(blocks, 0) * quants + _half(blocks, 2)


def _q4_k(blocks: Tensor) -> Tensor:
    scales, mins = _scales_and_mins(blocks)
    quants = torch.cat([_nibbles(blocks[:, at : at + 32]) for at in range(16, 144, 32)], dim=1)
    return _affine(quants, scales, mins)


def _q5_k(blocks: Tensor) -> Tensor:
    scales, mins = _scales_and_mins(blocks)
    low = torch.cat([_nibbles(blocks[:, at : at + 32]) for at in range(48, 176, 32)], dim=1)
    high = torch.cat([(blocks[:, 16:48] >> bit) & 1 for bit in range(8)], dim=1)
    return _affine(low + 16 * high.float(), scales, mins)


def _q6_k(blocks: Tensor) -> Tensor:
    """Two runs of 128 weights: 64 bytes of low nibbles, 32 bytes of bit pairs above them."""
    runs = []
    for run in range(2):
        low = _nibbles(blocks[:, 64 * run : 64 * run + 64])
        pairs = blocks[:, 128 + 32 * run : 160 + 32 * run]
        high = torch.cat([(pairs >> shift) & 3 for shift in (0, 2, 4, 6)], dim=1)
        runs.append(low + 16 * high.float() - 32)
    quants = torch.cat(runs, dim=1).view(-1, 16, 16)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()
    return (scales.unsqueeze(2) * quants).flatten(1)


def _affine(quants: Tensor, scales: Tensor, mins: Tensor) -> Tensor:
    groups = quants.view(-1, 8, 32)
    return (scales.unsqueeze(2) * groups - mins.unsqueeze(2)).flatten(1)


def _scales_and_mins(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Eight 6-bit scales and minima: bytes 4..15, the upper four of each split over two bytes."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((first & 63, (third & 15) | ((first >> 2) & 48)), dim=1)
    mins = torch.cat((second & 63, (third >> 4) | ((second >> 2) & 48)), dim=1)
    return _half(blocks, 0) * scales.float(), _half(blocks, 2) * mins.float()


def _half(blocks: Tensor, at: int) -> Tensor:
    return blocks[:, at : at + 2].clone().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    return torch.cat((packed & 15, packed >> 4), dim=1).float()


def _bits(packed: Tensor) -> Tensor:
    """Four bytes -> 32 floats of 0 or 1, lowest bit first."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((packed.unsqueeze(2) >> shifts) & 1).flatten(1).float()


BLOCK_FORMATS = {
    0: BlockFormat("F32", 1, 4, _f32),
    1: BlockFormat("F16", 1, 2, _f16),
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k),
    30: BlockFormat("BF16", 1, 2, _bf16),
}
