"""Rotary positions: a rotation, relative, in place; each backend against the reference."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import rope as cpu
from treadle.kernels.inputs import activations, strided
from treadle.kernels.reference import rope as reference
from treadle.kernels.reference.rope import QkNorm, rope_inv_freq, rope_table
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import rope as triton_module

triton = ops_of(triton_module)
EPS = 1e-6
MODULES = pytest.mark.parametrize("module", [reference, cpu], ids=["reference", "cpu"])


def heads(rows: int, num: int, size: int, seed: int = 0) -> torch.Tensor:
    return activations(rows, num * size, seed=seed).view(rows, num, size)


def test_table_holds_cosines_then_sines():
    table = rope_table(rope_inv_freq(8, 100.0), 50)
    angle = torch.tensor(17 * 100.0 ** (-4 / 8), dtype=torch.float64)
    assert table[17, 2] == angle.cos().float() and table[17, 6] == angle.sin().float()


def test_scores_depend_on_the_distance_alone():
    table = rope_table(rope_inv_freq(16, 1e4), 300, torch.float64)
    scores = []
    for shift in (0, 200):
        q, k = heads(1, 1, 16).double(), heads(1, 1, 16, seed=1).double()
        reference.rope(q, k, torch.tensor([40 + shift]), table)
        reference._rotate(k, torch.tensor([0]), table)
        k2 = heads(1, 1, 16, seed=1).double()
        reference._rotate(k2, torch.tensor([11 + shift]), table)
        scores.append((q * k2).sum())
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [256, 64, 20])
@pytest.mark.parametrize("rows", [0, 1, 5, 40])
def test_cpu_rope_agrees_with_reference(isa, size, rows):
    table = rope_table(rope_inv_freq(size, 1e4), 1000)
    positions = torch.arange(rows) * 25 % 1000
    q, k = heads(rows, 4, size), heads(rows, 1, size, seed=1)
    norm = QkNorm(activations(1, size, seed=2)[0], activations(1, size, seed=3)[0], EPS)
    for place in (torch.clone, strided):
        got_q, got_k, want_q, want_k = place(q), place(k), q.clone(), k.clone()
        cpu.rope(got_q, got_k, positions, table)
        reference.rope(want_q, want_k, positions, table)
        assert_close(got_q, want_q, "rope")
        assert_close(got_k, want_k, "rope")
        cpu.qk_norm_rope(got_q, got_k, norm, positions, table)
        reference.qk_norm_rope(want_q, want_k, norm, positions, table)
        torch.testing.assert_close(got_q, want_q, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got_k, want_k, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
def test_norm_rope_changes_its_slice_only(module):
    table = rope_table(rope_inv_freq(32, 1e4), 10)
    fused = activations(3, 5 * 32)
    before, part = fused.clone(), fused[:, 32:96].view(3, 2, 32)
    want = part.clone()
    weight, positions = torch.ones(32), torch.tensor([0, 9, 3])
    module.norm_rope(part, weight, positions, table, EPS)
    reference.norm_rope(want, weight, positions, table, EPS)
    assert_close(part, want, "rope")
    assert torch.equal(fused[:, :32], before[:, :32])
    assert torch.equal(fused[:, 96:], before[:, 96:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [256, 64, 20])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_triton_rope_agrees_with_reference(size, rows, dtype):
    table = rope_table(rope_inv_freq(size, 1e4), 1000)
    positions = torch.arange(rows) * 225 % 1000
    q, k = heads(rows, 5, size).to(dtype), heads(rows, 2, size, seed=1).to(dtype)
    norm = QkNorm(activations(1, size, seed=2)[0], activations(1, size, seed=3)[0], EPS)
    got_q, got_k, want_q, want_k = strided(q), strided(k), q.clone(), k.clone()
    triton.rope(got_q, got_k, positions, table)
    reference.rope(want_q, want_k, positions, table)
    assert_close(got_q, want_q, "rope")
    assert_close(got_k, want_k, "rope")
    triton.qk_norm_rope(got_q, got_k, norm, positions, table)
    reference.qk_norm_rope(want_q, want_k, norm, positions, table)
    relative = 1e-4 if dtype is torch.float32 else 5e-2  # the norm magnifies what differed before
    torch.testing.assert_close(got_q, want_q, rtol=relative, atol=relative)
    torch.testing.assert_close(got_k, want_k, rtol=relative, atol=relative)


def test_triton_row_outside_the_table_is_not_a_number():
    table = rope_table(rope_inv_freq(16, 1e4), 10)
    q, k = heads(3, 2, 16), heads(3, 1, 16)
    triton.rope(q, k, torch.tensor([10, 9, -1]), table)
    assert q[0].isnan().all() and k[2].isnan().all()
    assert not q[1].isnan().any() and not k[1].isnan().any()


@MODULES
def test_float64_stays_float64(module):
    table = rope_table(rope_inv_freq(16, 1e4), 10, torch.float64)
    q, k = heads(2, 2, 16).double(), heads(2, 1, 16).double()
    length = q.norm(dim=-1)
    module.rope(q, k, torch.tensor([4, 7]), table)
    assert q.dtype is torch.float64
    torch.testing.assert_close(q.norm(dim=-1), length, rtol=1e-14, atol=0)


@MODULES
@pytest.mark.parametrize("bad", [10, 2**40])
def test_position_past_the_table_is_refused(module, bad):
    table = rope_table(rope_inv_freq(16, 1e4), 10)
    with pytest.raises(IndexError):
        module.rope(heads(2, 2, 16), heads(2, 1, 16), torch.tensor([0, bad]), table)


@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
def test_sizes_that_disagree_are_refused(module):
    table = rope_table(rope_inv_freq(16, 1e4), 10)
    with pytest.raises(ValueError, match="positions"):
        module.rope(heads(2, 2, 16), heads(2, 1, 16), torch.tensor([0]), table)
    with pytest.raises(ValueError, match="table"):
        module.rope(heads(2, 2, 32), heads(2, 1, 32), torch.tensor([0, 1]), table)
