"""Stored matrices: fusion, slices of output features, embedding from the packed form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from treadle.kernels.ops import Q8Weight
from treadle.srt.layers.linear import Embedding, Linear, WeightPolicy, join

DENSE = WeightPolicy(torch.float32, is_q8=False)
PACKED = WeightPolicy(torch.float32, is_q8=True)


@pytest.fixture
def parts() -> list[Tensor]:
    gen = torch.Generator().manual_seed(0)
    return [torch.randn(n, 64, generator=gen) for n in (32, 16, 16)]


@pytest.mark.parametrize("policy", [DENSE, PACKED], ids=["dense", "q8"])
def test_fused_matrix_equals_its_parts(policy: WeightPolicy, parts: list[Tensor]):
    x = torch.randn(5, 64)
    fused = Linear(join([policy.keep(p) for p in parts]))
    alone = torch.cat([Linear(policy.keep(p))(x) for p in parts], dim=1)
    torch.testing.assert_close(fused(x), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", [DENSE, PACKED], ids=["dense", "q8"])
def test_slice_of_features_equals_the_slice_of_all(policy: WeightPolicy, parts: list[Tensor]):
    x, bias = torch.randn(3, 64), torch.randn(64)
    linear = Linear(join([policy.keep(p) for p in parts]), bias)
    torch.testing.assert_close(linear(x, 32), linear(x)[:, 32:], rtol=0, atol=1e-5)
    torch.testing.assert_close(linear(x, 0, 32), linear(x)[:, :32], rtol=0, atol=1e-5)


def test_input_sizes_that_do_not_fill_groups_stay_dense():
    assert isinstance(PACKED.keep(torch.randn(16, 40)), Tensor)
    assert isinstance(PACKED.keep(torch.randn(16, 64)), Q8Weight)


def test_parts_stored_differently_are_not_fused(parts: list[Tensor]):
    with pytest.raises(ValueError, match="mix"):
        join([DENSE.keep(parts[0]), PACKED.keep(parts[1])])


def test_bfloat16_storage_keeps_float32_activations(parts: list[Tensor]):
    policy = WeightPolicy(torch.bfloat16, is_q8=False)
    x = torch.randn(4, 64)
    out = Linear(policy.keep(parts[0]))(x)
    assert out.dtype is torch.float32
    torch.testing.assert_close(out, x @ parts[0].T, rtol=0.05, atol=0.3)


@pytest.mark.parametrize("policy", [DENSE, PACKED], ids=["dense", "q8"])
def test_embedding_is_the_scaled_row(policy: WeightPolicy, parts: list[Tensor]):
    embed = Embedding(policy.keep(parts[0]), 3.0, torch.float32)
    out = embed(torch.tensor([4, 0, 31]))
    torch.testing.assert_close(out, parts[0][[4, 0, 31]] * 3, rtol=0, atol=0.1)
