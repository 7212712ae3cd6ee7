"""Gated activations: each backend against the reference, far tails included."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import activation as cpu
from treadle.kernels.inputs import activations, strided
from treadle.kernels.reference import activation as reference
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import activation as triton_module

triton = ops_of(triton_module)
NAMES = pytest.mark.parametrize("name", ["gelu_tanh_mul", "silu_mul"])


@NAMES
@pytest.mark.parametrize("case", [(0, 32), (1, 4096), (3, 14), (7, 200), (40, 4096)], ids=str)
def test_cpu_gate_agrees_with_reference(isa, name, case):
    op, want_op = vars(cpu)[name], vars(reference)[name]
    gate_up = activations(*case) / 4
    want = want_op(gate_up)
    assert_close(op(gate_up), want, "activation")
    assert_close(op(strided(gate_up)), want, "activation")
    out = strided(torch.zeros_like(want))
    assert op(gate_up, out) is out
    assert_close(out, want, "activation")


@NAMES
def test_cpu_gate_is_right_in_the_tails(isa, name):
    gate = torch.tensor([-1e4, -100.0, -89, -20, -5, -1e-20, 0, 1e-20, 5, 20, 89, 100, 1e4])
    gate_up = torch.stack((gate, torch.ones_like(gate)), 0).view(1, -1)
    assert_close(vars(cpu)[name](gate_up), vars(reference)[name](gate_up), "activation")


@NAMES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [(0, 32), (1, 4096), (3, 14), (7, 200)], ids=str)
def test_triton_gate_agrees_with_reference(name, case, dtype):
    op = vars(triton)[name]
    gate_up = activations(*case, dtype=dtype) / 4
    want = vars(reference)[name](gate_up)
    assert_close(op(strided(gate_up)), want, "activation")
    out = strided(torch.zeros_like(want))
    assert op(gate_up, out) is out
    assert_close(out, want, "activation")


@NAMES
def test_triton_gate_is_right_in_the_tails(name):
    gate = torch.tensor([-1e4, -100.0, -89, -20, -5, -1e-20, 0, 1e-20, 5, 20, 89, 100, 1e4])
    gate_up = torch.stack((gate, torch.ones_like(gate)), 0).view(1, -1)
    assert_close(vars(triton)[name](gate_up), vars(reference)[name](gate_up), "activation")


@NAMES
def test_float64_runs_in_float64(name):
    gate_up = activations(3, 40, dtype=torch.float64)
    result = vars(cpu)[name](gate_up)
    assert result.dtype is torch.float64
    assert torch.equal(result, vars(reference)[name](gate_up))


@NAMES
def test_row_is_the_same_bits_in_any_batch(isa, name):
    op, gate_up = vars(cpu)[name], activations(90, 640)
    whole = op(gate_up)
    for rows in (slice(0, 1), slice(30, 71), slice(89, 90)):
        assert torch.equal(op(gate_up[rows]), whole[rows])


@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
def test_out_of_another_size_is_refused(module):
    with pytest.raises(ValueError, match="out must be"):
        module.silu_mul(activations(2, 64), torch.empty(2, 64))
