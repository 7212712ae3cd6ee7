"""Routing and the clamped activation."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import HAS_DEVICE, ops_of
from treadle.kernels.cpu import moe as cpu
from treadle.kernels.inputs import activations
from treadle.kernels.reference import moe
from treadle.kernels.reference import packed_linear as packed
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import moe as triton_module

triton = ops_of(triton_module)


def test_bias_chooses_and_never_scales():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    chosen, weights = moe.route(logits, torch.tensor([0.0, 0.0, 0.0, 9.0]), 2, 1.5)
    assert chosen.tolist() == [[3, 0]]
    scores = torch.sqrt(torch.log1p(torch.exp(torch.tensor([-1.0, 2.0]))))
    torch.testing.assert_close(weights[0], scores / scores.sum() * 1.5)


def test_ties_go_to_the_lower_expert():
    assert moe.route(torch.zeros(1, 5), torch.zeros(5), 3, 1.0)[0].tolist() == [[0, 1, 2]]


def test_the_gate_is_capped_above_and_the_other_on_both_sides():
    gate, up = torch.tensor([50.0, -50.0, 1.0]), torch.tensor([50.0, 2.0, -50.0])
    out = moe.clamped_swiglu(gate, up, 10.0)
    silu = torch.nn.functional.silu
    want = torch.stack(
        [
            silu(torch.tensor(10.0)) * 10,
            silu(torch.tensor(-50.0)) * 2,
            silu(torch.tensor(1.0)) * -10,
        ]
    )
    torch.testing.assert_close(out, want)


WIDTH, INNER, COUNT = 64, 96, 5


def experts(*, is_rounding: bool, first: int = 0) -> moe.Experts:
    generator = torch.Generator().manual_seed(1)

    def matrix(rows: int, columns: int) -> packed.PackedMatrix:
        codes = torch.randint(0, 256, (rows, columns // 2), generator=generator)
        scales = torch.randint(120, 124, (rows, columns // 32), generator=generator)
        return packed.pack_fp4(codes.to(torch.uint8), scales.to(torch.uint8))

    gate_up, down = matrix(COUNT * 2 * INNER, WIDTH), matrix(COUNT * WIDTH, INNER)
    return moe.Experts(first, gate_up, down, 10.0, is_rounding)


def routed(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.randn(rows, COUNT, generator=torch.Generator().manual_seed(rows))
    return moe.route(logits, torch.zeros(COUNT), 2, 1.5)


@pytest.mark.parametrize("rows", [0, 1, 70])
def test_cpu_routes_as_the_reference(isa, rows):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(rows, 24, generator=generator) * 20
    bias = torch.randn(24, generator=generator)
    got, want = cpu.route(logits, bias, 6, 1.5), moe.route(logits, bias, 6, 1.5)
    assert torch.equal(got[0], want[0])
    assert_close(got[1], want[1], "moe")
    tied = cpu.route(torch.zeros(rows, 5), torch.zeros(5), 3, 1.0)[0]
    assert tied.tolist() == [[0, 1, 2]] * rows


@pytest.mark.parametrize("size", [3, 32, 100])
def test_cpu_activation_agrees_with_the_reference(isa, size):
    both = activations(7, 2 * size) * 3
    gate, up = both[:, :size], both[:, size:]
    gate[2, 1], up[3, 0] = torch.nan, torch.nan
    want = moe.clamped_swiglu(gate, up, 10.0)
    got = cpu.clamped_swiglu(gate, up, 10.0)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True)
    got = cpu.clamped_swiglu(gate.contiguous(), up, 10.0)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("rows", [0, 1, 2, 40])
def test_cpu_experts_agree_with_the_reference(isa, rows):
    e, x = experts(is_rounding=False), activations(rows, WIDTH) / 8
    chosen, weights = routed(rows)
    assert_close(
        cpu.moe_experts(x, chosen, weights, e), moe.moe_experts(x, chosen, weights, e), "moe"
    )


def test_cpu_experts_round_the_inputs_of_both_matrices(isa):
    """A value on the other side of a tie moves a result by far less than no rounding does."""
    x, (chosen, weights) = activations(40, WIDTH) / 8, routed(40)
    rounded, plain = experts(is_rounding=True), experts(is_rounding=False)
    want = moe.moe_experts(x, chosen, weights, rounded)
    off = (cpu.moe_experts(x, chosen, weights, rounded) - want).abs().mean()
    unrounded = (moe.moe_experts(x, chosen, weights, plain) - want).abs().mean()
    assert off < unrounded / 20


def test_a_row_is_the_same_bits_in_any_batch(isa):
    e, x, (chosen, weights) = experts(is_rounding=True), activations(300, WIDTH), routed(300)
    whole = cpu.moe_experts(x, chosen, weights, e)
    for rows in (slice(0, 1), slice(7, 60), slice(299, 300)):
        part = cpu.moe_experts(x[rows], chosen[rows], weights[rows], e)
        assert torch.equal(part, whole[rows])


def test_experts_of_another_rank_give_nothing(isa):
    x, (chosen, weights) = activations(40, WIDTH), routed(40)
    shifted = experts(is_rounding=False, first=3)  # numbers 3 to 7, of which 3 and 4 are chosen
    want = moe.moe_experts(x, chosen, weights, shifted)
    assert_close(cpu.moe_experts(x, chosen, weights, shifted), want, "moe")
    others = (chosen < 3).all(1)
    assert others.any() and not want[others].any() and want[~others].any()


def test_cpu_refuses_sizes_that_disagree():
    e, x, (chosen, weights) = experts(is_rounding=True), activations(3, WIDTH), routed(3)
    with pytest.raises(ValueError, match="experts"):
        cpu.moe_experts(x[:, :32], chosen, weights, e)


@pytest.mark.parametrize("rows", [0, 9])
def test_triton_routes_as_the_reference(rows):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(rows, 24, generator=generator) * 20
    bias = torch.randn(24, generator=generator)
    got, want = triton.route(logits, bias, 6, 1.5), moe.route(logits, bias, 6, 1.5)
    assert torch.equal(got[0], want[0])
    assert_close(got[1], want[1], "moe")
    tied = triton.route(torch.zeros(rows, 5), torch.zeros(5), 3, 1.0)[0]
    assert tied.tolist() == [[0, 1, 2]] * rows


def test_triton_route_weighs_small_scores_exactly():
    logits = torch.linspace(-60.0, 40.0, 96).view(8, 12)
    got, want = (m.route(logits, torch.zeros(12), 12, 1.0) for m in (triton, moe))
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=2e-5, atol=0)


@pytest.mark.parametrize("size", [3, 100, 700])
def test_triton_activation_agrees_with_the_reference(size):
    both = activations(7, 2 * size) * 3
    gate, up = both[:, :size], both[:, size:]
    gate[2, 1], up[3, 0] = torch.nan, torch.nan
    want = moe.clamped_swiglu(gate, up, 10.0)
    for given in (gate, gate.contiguous()):
        got = triton.clamped_swiglu(given, up, 10.0)
        torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("rows", [0, 9])
def test_triton_experts_agree_with_the_reference(rows):
    e, x = experts(is_rounding=False), activations(rows, WIDTH) / 8
    chosen, weights = routed(rows)
    got = triton.moe_experts(x, chosen, weights, e)
    assert_close(got, moe.moe_experts(x, chosen, weights, e), "moe")


def test_triton_experts_round_the_inputs_of_both_matrices():
    x, (chosen, weights) = activations(9, WIDTH) / 8, routed(9)
    rounded, plain = experts(is_rounding=True), experts(is_rounding=False)
    want = moe.moe_experts(x, chosen, weights, rounded)
    off = (triton.moe_experts(x, chosen, weights, rounded) - want).abs().mean()
    unrounded = (moe.moe_experts(x, chosen, weights, plain) - want).abs().mean()
    assert off < unrounded / 20


def test_triton_experts_of_another_rank_give_nothing():
    x, (chosen, weights) = activations(9, WIDTH), routed(9)
    shifted = experts(is_rounding=False, first=3)
    want = moe.moe_experts(x, chosen, weights, shifted)
    assert_close(triton.moe_experts(x, chosen, weights, shifted), want, "moe")
    with pytest.raises(ValueError, match="experts"):
        triton.moe_experts(x[:, :32], chosen, weights, shifted)


def test_triton_row_is_the_same_bits_in_any_batch():
    e, x, (chosen, weights) = experts(is_rounding=True), activations(20, WIDTH), routed(20)
    whole = triton.moe_experts(x, chosen, weights, e)
    for rows in (slice(7, 9),):
        part = triton.moe_experts(x[rows], chosen[rows], weights[rows], e)
        assert torch.equal(part, whole[rows])


@pytest.mark.skipif(not HAS_DEVICE, reason="takes long under the interpreter")
def test_triton_row_is_the_same_bits_beside_many_others():
    e, x, (chosen, weights) = experts(is_rounding=True), activations(400, WIDTH), routed(400)
    whole = triton.moe_experts(x, chosen, weights, e)
    for rows in (slice(0, 1), slice(100, 120), slice(399, 400)):
        part = triton.moe_experts(x[rows], chosen[rows], weights[rows], e)
        assert torch.equal(part, whole[rows])
