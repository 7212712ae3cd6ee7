"""Pooling of two positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import compressor as cpu
from treadle.kernels.inputs import activations, strided
from treadle.kernels.reference.compressor import pool_pairs
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import compressor as triton_module

triton = ops_of(triton_module)


def test_a_pair_is_pooled_by_a_softmax_of_its_gates_in_each_channel():
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    gates = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)) * 3
    want = (torch.softmax(gates, 0) * values).sum(0)
    torch.testing.assert_close(pool_pairs(values[0], gates[0], values[1], gates[1]), want)


def test_equal_gates_give_the_mean():
    zero = torch.zeros(1, 2)
    assert pool_pairs(torch.tensor([[2.0, 4.0]]), zero, zero, zero).tolist() == [[1.0, 2.0]]


def pairs(rows: int, size: int) -> tuple[Tensor, ...]:
    return tuple(activations(rows, size, seed=seed) / 5 for seed in range(4))


@pytest.mark.parametrize("shape", [(0, 16), (1, 64), (7, 24), (70, 512)])
def test_cpu_agrees_with_the_reference(isa, shape):
    parts = pairs(*shape)
    want = pool_pairs(*parts)
    assert_close(cpu.pool_pairs(*parts), want, "gate")
    assert_close(cpu.pool_pairs(*(strided(x) for x in parts)), want, "gate")
    wide = [x.double() for x in parts]
    assert torch.equal(cpu.pool_pairs(*wide), pool_pairs(*wide))


def test_a_row_has_the_same_bits_in_any_batch(isa, monkeypatch):
    """Also with three threads, of which none gets a whole number of vectors."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    parts = pairs(331, 40)
    together = cpu.pool_pairs(*parts)
    for row in (0, 5, 330):
        alone = cpu.pool_pairs(*(x[row : row + 1] for x in parts))
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("place", range(4))
def test_not_a_number_stays(isa, place):
    parts = pairs(1, 20)
    parts[place][0, 17] = torch.nan
    assert torch.isnan(cpu.pool_pairs(*parts))[0].nonzero().flatten().tolist() == [17]


def test_other_sizes_are_refused():
    even, even_gate, odd, _ = pairs(2, 16)
    with pytest.raises(ValueError, match="pool_pairs"):
        cpu.pool_pairs(even, even_gate, odd, torch.zeros(2, 8))


@pytest.mark.parametrize("shape", [(0, 16), (1, 64), (7, 24), (9, 512)])
def test_triton_agrees_with_the_reference(shape):
    parts = pairs(*shape)
    want = pool_pairs(*parts)
    assert_close(triton.pool_pairs(*parts), want, "gate")
    assert_close(triton.pool_pairs(*(strided(x) for x in parts)), want, "gate")
    parts[1][:, :1] = torch.nan
    assert triton.pool_pairs(*parts)[:, 0].isnan().all()
    with pytest.raises(ValueError, match="pool_pairs"):
        triton.pool_pairs(*parts[:3], torch.zeros(2, 8))
