"""RMS norms: formula, dtypes, strides, in-place sums; each backend against the reference."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import norm as cpu
from treadle.kernels.inputs import activations, strided
from treadle.kernels.reference import norm as reference
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import norm as triton_module

triton = ops_of(triton_module)
EPS = 1e-6
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
CASES = [(0, 64), (1, 640), (3, 7), (5, 100), (70, 640)]
TRITON_CASES = pytest.mark.parametrize("case", [*CASES[:4], (9, 640)], ids=str)


def test_reference_is_the_formula_in_float64():
    x, weight = activations(4, 50, dtype=torch.float64), activations(1, 50, seed=1)[0].double()
    want = x / (x.pow(2).mean(1, keepdim=True) + EPS).sqrt() * weight
    torch.testing.assert_close(reference.rms_norm(x, weight, EPS), want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("module", [reference, cpu, triton], ids=["reference", "cpu", "triton"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes_keep_their_dtype_and_sum_wider(module, dtype):
    x, weight = activations(4, 64, dtype=dtype), torch.ones(64, dtype=dtype)
    result = module.rms_norm(x, weight, EPS)
    wide = reference.rms_norm(x.double(), weight.double(), EPS)
    assert result.dtype == dtype
    if dtype is torch.float64:  # a device sums in another order
        torch.testing.assert_close(result, wide, rtol=1e-14, atol=0)
    torch.testing.assert_close(result.double(), wide, rtol=8e-3, atol=1e-3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cpu_norm_agrees_with_reference(isa, case):
    x, weight = activations(*case), activations(1, case[1], seed=1)[0]
    want = reference.rms_norm(x, weight, EPS)
    assert_close(cpu.rms_norm(x, weight, EPS), want, "norm")
    assert_close(cpu.rms_norm(strided(x), weight, EPS), want, "norm")
    out = strided(torch.zeros(case))
    assert cpu.rms_norm(x, weight, EPS, out) is out
    assert_close(out, want, "norm")
    assert cpu.rms_norm(x, weight, EPS, x) is x
    assert_close(x, want, "norm")


def test_cpu_norm_of_heads_agrees_with_reference(isa):
    x, weight = activations(6, 3 * 32).view(6, 3, 32), activations(1, 32, seed=1)[0]
    want = reference.rms_norm(x, weight, EPS)
    assert_close(cpu.rms_norm(x, weight, EPS), want, "norm")
    assert_close(cpu.rms_norm(strided(x), weight, EPS), want, "norm")
    transposed = x.transpose(0, 1)
    assert_close(cpu.rms_norm(transposed, weight, EPS), want.transpose(0, 1), "norm")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cpu_add_and_norm_agrees_with_reference(isa, case):
    x, weight = activations(*case), activations(1, case[1], seed=1)[0]
    residual = activations(*case, seed=2)
    inner = activations(1, case[1], seed=3)[0]
    for got_residual in (residual.clone(), strided(residual)):
        want_residual = residual.clone()
        got = cpu.add_rms_norm(strided(x), got_residual, weight, EPS)
        assert_close(got, reference.add_rms_norm(x, want_residual, weight, EPS), "norm")
        assert torch.equal(got_residual, want_residual)
        got = cpu.norm_add_rms_norm(x, got_residual, inner, weight, EPS)
        want = reference.norm_add_rms_norm(x, want_residual, inner, weight, EPS)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got_residual, want_residual, rtol=1e-5, atol=1e-5)


def test_row_is_the_same_bits_in_any_batch(isa):
    x, weight = activations(200, 640), activations(1, 640, seed=1)[0]
    whole = cpu.rms_norm(x, weight, EPS)
    for rows in (slice(0, 1), slice(7, 60), slice(199, 200)):
        assert torch.equal(cpu.rms_norm(x[rows], weight, EPS), whole[rows])


@DTYPES
@TRITON_CASES
def test_triton_norm_agrees_with_reference(case, dtype):
    x, weight = activations(*case, dtype=dtype), activations(1, case[1], seed=1)[0]
    want = reference.rms_norm(x, weight, EPS)
    assert_close(triton.rms_norm(x, weight, EPS), want, "norm")
    assert_close(triton.rms_norm(strided(x), weight, EPS), want, "norm")
    out = strided(torch.zeros(case, dtype=dtype))
    assert triton.rms_norm(x, weight, EPS, out) is out
    assert_close(out, want, "norm")
    assert triton.rms_norm(x, weight, EPS, x) is x
    assert_close(x, want, "norm")


@DTYPES
def test_triton_norm_of_heads_agrees_with_reference(dtype):
    x, weight = activations(6, 3 * 32, dtype=dtype).view(6, 3, 32), activations(1, 32, seed=1)[0]
    want = reference.rms_norm(x, weight, EPS)
    assert_close(triton.rms_norm(strided(x), weight, EPS), want, "norm")
    assert_close(triton.rms_norm(x.transpose(0, 1), weight, EPS), want.transpose(0, 1), "norm")


@DTYPES
@TRITON_CASES
def test_triton_add_and_norm_agrees_with_reference(case, dtype):
    x, residual = activations(*case, dtype=dtype), activations(*case, seed=2, dtype=dtype)
    inner, weight = (activations(1, case[1], seed=i)[0] for i in (3, 1))
    got_residual, want_residual = strided(residual), residual.clone()
    got = triton.add_rms_norm(strided(x), got_residual, weight, EPS)
    assert_close(got, reference.add_rms_norm(x, want_residual, weight, EPS), "norm")
    assert_close(got_residual, want_residual, "norm")
    got_residual.copy_(want_residual)
    got = triton.norm_add_rms_norm(x, got_residual, inner, weight, EPS)
    want = reference.norm_add_rms_norm(x, want_residual, inner, weight, EPS)
    for one, other in ((got, want), (got_residual, want_residual)):  # sums of what was rounded
        error = (one.double() - other.double()).norm() / other.double().norm().clamp(min=1e-9)
        assert error < (1e-6 if dtype is torch.float32 else 1e-2)


def test_triton_row_is_the_same_bits_in_any_batch():
    x, weight = activations(20, 640), activations(1, 640, seed=1)[0]
    whole = triton.rms_norm(x, weight, EPS)
    for rows in (slice(0, 1), slice(7, 15), slice(19, 20)):
        assert torch.equal(triton.rms_norm(x[rows], weight, EPS), whole[rows])


@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
def test_sizes_that_disagree_are_refused(module):
    x = activations(2, 64)
    with pytest.raises(ValueError, match="weight"):
        module.rms_norm(x, torch.ones(32), EPS)
    with pytest.raises(ValueError, match="cannot add"):
        module.add_rms_norm(x, activations(3, 64), torch.ones(64), EPS)
