"""Pooling of two positions."""

from __future__ import annotations

import torch

from treadle.kernels.reference.compressor import pool_pairs


def test_a_pair_is_pooled_by_a_softmax_of_its_gates_in_each_channel():
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    gates = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)) * 3
    want = (torch.softmax(gates, 0) * values).sum(0)
    torch.testing.assert_close(pool_pairs(values[0], gates[0], values[1], gates[1]), want)


def test_equal_gates_give_the_mean():
    zero = torch.zeros(1, 2)
    assert pool_pairs(torch.tensor([[2.0, 4.0]]), zero, zero, zero).tolist() == [[1.0, 2.0]]
