"""Rotary embedding of adjacent pairs: published frequencies, inverse, relative positions."""

from __future__ import annotations

import torch

from treadle.kernels.reference.rope_pairs import rope_pairs, yarn_frequencies


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
