"""Rotary embedding of adjacent pairs: published frequencies, inverse, relative positions."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import rope_pairs as cpu
from treadle.kernels.inputs import activations, strided
from treadle.kernels.reference.rope_pairs import rope_pairs, yarn_frequencies
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import rope_pairs as triton_module

triton = ops_of(triton_module)


def test_scaled_frequencies_are_the_published_ones():
    f = yarn_frequencies(64, 160000.0, 16.0, 32.0, 1.0, 65536)
    want = [1.0, 0.687656, 3.635539e-3, 2.969778e-4, 1.953125e-5, 5.680529e-7]
    torch.testing.assert_close(f[[0, 1, 15, 20, 24, 31]], torch.tensor(want), rtol=1e-6, atol=0)


def test_factor_one_leaves_them_plain():
    f = yarn_frequencies(8, 10000.0, 1.0, 32.0, 1.0, 1024)
    torch.testing.assert_close(f, torch.tensor([1.0, 0.1, 0.01, 0.001]))


def test_only_the_last_channels_turn_and_the_inverse_turns_back():
    x = torch.randn(5, 3, 16, generator=torch.Generator().manual_seed(0))
    positions, f = torch.tensor([0, 1, 7, 100, 5000]), yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    turned = rope_pairs(x, positions, f)
    assert torch.equal(turned[..., :8], x[..., :8])
    assert torch.equal(turned[0], x[0])
    torch.testing.assert_close(rope_pairs(turned, positions, f, inverse=True), x, atol=1e-5, rtol=0)


def test_products_depend_on_the_distance_alone():
    f = yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(1)).unbind(0)

    def product(a: int, b: int) -> torch.Tensor:
        turned = rope_pairs(torch.stack((q, k)), torch.tensor([a, b]), f)
        return turned[0] @ turned[1]

    torch.testing.assert_close(product(3, 1), product(103, 101), atol=1e-5, rtol=0)


def test_a_pair_is_two_neighbours():
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    out = rope_pairs(x, torch.tensor([1]), torch.tensor([torch.pi / 2, 0.0]))
    torch.testing.assert_close(out, torch.tensor([[0.0, 1.0, 1.0, 0.0]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("is_inverse", [False, True])
@pytest.mark.parametrize("shape", [(0, 16), (1, 16), (70, 3, 64), (5, 2, 8)])
def test_cpu_agrees_with_the_reference(isa, shape, is_inverse):
    x = activations(shape[0], torch.Size(shape[1:]).numel()).view(shape) / 20
    f = yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    positions = torch.arange(shape[0]) * 977
    want = rope_pairs(x, positions, f, inverse=is_inverse)
    assert_close(cpu.rope_pairs(x, positions, f, inverse=is_inverse), want, "rope")
    assert_close(cpu.rope_pairs(strided(x), positions, f, inverse=is_inverse), want, "rope")


def test_a_row_is_the_same_bits_in_any_batch(isa):
    x, positions = activations(300, 4 * 64).view(300, 4, 64), torch.arange(300) * 31
    f = yarn_frequencies(16, 1e4, 1.0, 32, 1, 64)
    whole = cpu.rope_pairs(x, positions, f)
    for rows in (slice(0, 1), slice(7, 60), slice(299, 300)):
        assert torch.equal(cpu.rope_pairs(x[rows], positions[rows], f), whole[rows])


def test_cpu_refuses_sizes_that_disagree():
    f = yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    with pytest.raises(ValueError, match="positions"):
        cpu.rope_pairs(torch.zeros(3, 16), torch.arange(2), f)
    with pytest.raises(ValueError, match="pairs"):
        cpu.rope_pairs(torch.zeros(3, 6), torch.arange(3), f)


def test_cpu_runs_the_reference_on_other_dtypes():
    x, f = torch.ones(3, 16).double(), yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    positions = torch.arange(3)
    assert torch.equal(cpu.rope_pairs(x, positions, f), rope_pairs(x, positions, f))


@pytest.mark.parametrize("is_inverse", [False, True])
@pytest.mark.parametrize("shape", [(0, 16), (1, 16), (7, 3, 64), (5, 2, 8)])
def test_triton_agrees_with_the_reference(shape, is_inverse):
    x = activations(shape[0], torch.Size(shape[1:]).numel()).view(shape) / 20
    f = yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    positions = torch.arange(shape[0]) * 977
    want = rope_pairs(x, positions, f, inverse=is_inverse)
    assert_close(triton.rope_pairs(x, positions, f, inverse=is_inverse), want, "rope")
    assert_close(triton.rope_pairs(strided(x), positions, f, inverse=is_inverse), want, "rope")


def test_triton_refuses_sizes_that_disagree():
    f = yarn_frequencies(8, 1e4, 1.0, 32, 1, 64)
    with pytest.raises(ValueError, match="positions"):
        triton.rope_pairs(torch.zeros(3, 16), torch.arange(2), f)
