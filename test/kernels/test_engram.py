"""N-gram memory: the published hash rows, and the gate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import engram as cpu
from treadle.kernels.inputs import activations
from treadle.kernels.reference import block_float, engram
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import engram as triton_module
from treadle.srt.latent_config import EngramConfig
from treadle.srt.loader.engram_map import multipliers, primes

triton = ops_of(triton_module)

RELEASED = EngramConfig((1, 14), (384006168, 384016682), 4, 8, 256, 16_000_000, 99092, 2)
ROWS = {  # deepseek-v41.md, appendix A: columns 0, 1, 8, 9, 16, 17, 23
    (0, (10, 20, 30, 40)): (
        10250667,
        16051853,
        130904169,
        147647512,
        266647502,
        284737834,
        381142068,
    ),
    (0, (10, 2, 2, 2)): (9400104, 24924096, 128026094, 156221192, 261350200, 277988921, 382122658),
    (1, (10, 20, 30, 40)): (
        13402985,
        31185432,
        128818944,
        152218109,
        260141385,
        283855289,
        370522085,
    ),
    (1, (10, 2, 2, 2)): (11315085, 19412660, 135395884, 144699923, 269973942, 285486044, 379075217),
}


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_rows_are_the_published_ones(case):
    place, ids = case
    prime = torch.tensor(primes(RELEASED)[place])
    offset = (prime.flatten().cumsum(0) - prime.flatten()).view_as(prime)
    factors = torch.tensor(multipliers(RELEASED.layers[place], RELEASED))
    rows = engram.engram_rows(torch.tensor([ids]), factors, prime, offset)[0]
    assert tuple(rows[[0, 1, 8, 9, 16, 17, 23]].tolist()) == ROWS[case]
    assert int(rows.max()) < RELEASED.rows[place]


def test_the_gate_has_the_sign_of_the_dot_product_and_a_floor():
    x = torch.tensor([[[1.0, 1.0]]])
    value, weight = torch.tensor([[10.0, 20.0]]), torch.ones(1, 2)
    for key, sign in ((torch.tensor([[[1.0, 1.0]]]), 1.0), (torch.tensor([[[-1.0, -1.0]]]), -1.0)):
        out = engram.engram_gate(x, key, value, weight, 0.0)
        gate = torch.sigmoid(torch.tensor(sign * (2 * 2**-0.5) ** 0.5))
        torch.testing.assert_close(out, x + gate * value)
    out = engram.engram_gate(x, torch.tensor([[[1.0, -1.0]]]), value, weight, 0.0)
    torch.testing.assert_close(out, x + torch.sigmoid(torch.tensor(1e-3)) * value)


@pytest.mark.parametrize("size", [64, 96, 5120])
def test_a_row_does_not_depend_on_those_beside_it(size: int):
    generator = torch.Generator().manual_seed(1)
    x, key = (torch.randn(37, 4, size, generator=generator) for _ in range(2))
    value, weight = torch.randn(37, size, generator=generator), torch.ones(4, size)
    whole = engram.engram_gate(x, key, value, weight, 1e-20)
    for start, end in ((0, 1), (5, 11), (20, 37)):
        rows = slice(start, end)
        part = engram.engram_gate(x[rows], key[rows], value[rows], weight, 1e-20)
        assert torch.equal(part, whole[rows])


def gate_inputs(rows: int, streams: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, key, value, weight; key and value are parts of one matrix, as a layer has them."""
    x = activations(rows, streams * size).view(rows, streams, size)
    fused = activations(rows, (streams + 1) * size, seed=1).view(rows, streams + 1, size)
    return x, fused[:, :-1], fused[:, -1], activations(streams, size, seed=2)


@pytest.mark.parametrize("shape", [(0, 4, 16), (1, 4, 256), (3, 2, 24), (70, 4, 96)])
def test_cpu_agrees_with_the_reference(isa, shape):
    parts = gate_inputs(*shape)
    want = engram.engram_gate(*parts, 1e-6)
    assert_close(cpu.engram_gate(*parts, 1e-6), want, "gate")
    x, key, value, weight = (part.transpose(0, -1).contiguous().transpose(0, -1) for part in parts)
    assert_close(cpu.engram_gate(x, key, value, weight, 1e-6), want, "gate")
    x, key, value, weight = (part.double() for part in parts)
    wide = engram.engram_gate(x, key, value, weight, 1e-6)
    assert torch.equal(cpu.engram_gate(x, key, value, weight, 1e-6), wide)


def test_a_row_has_the_same_bits_in_any_batch(isa, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    x, key, value, weight = gate_inputs(131, 4, 96)
    together = cpu.engram_gate(x, key, value, weight, 1e-6)
    for row in (slice(0, 1), slice(7, 10), slice(130, 131)):
        alone = cpu.engram_gate(x[row], key[row], value[row], weight, 1e-6)
        assert torch.equal(alone, together[row])


def test_a_key_that_is_not_a_number_is_not_hidden_by_the_gate(isa):
    x, key, value, weight = gate_inputs(2, 2, 24)
    key[1, 0, 20] = torch.nan
    out = cpu.engram_gate(x, key, value, weight, 1e-6).isnan()
    assert out[1, 0].all() and not out[0].any() and not out[1, 1].any()


def test_other_sizes_are_refused():
    x, key, value, weight = gate_inputs(2, 2, 24)
    with pytest.raises(ValueError, match="engram_gate"):
        cpu.engram_gate(x, key[:, :1], value, weight, 1e-6)


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_triton_rows_are_the_published_ones(case):
    place, ids = case
    prime = torch.tensor(primes(RELEASED)[place])
    offset = (prime.flatten().cumsum(0) - prime.flatten()).view_as(prime)
    factors = torch.tensor(multipliers(RELEASED.layers[place], RELEASED))
    both = torch.tensor([ids, (99091, 0, 7, 99091)])
    rows = triton.engram_rows(both, factors, prime, offset)
    assert torch.equal(rows, engram.engram_rows(both, factors, prime, offset))
    assert tuple(rows[0, [0, 1, 8, 9, 16, 17, 23]].tolist()) == ROWS[case]
    assert triton.engram_rows(both[:0], factors, prime, offset).shape == (0, 24)


@pytest.mark.parametrize("shape", [(0, 4, 16), (1, 4, 256), (3, 2, 24), (5, 4, 1120)])
def test_triton_agrees_with_the_reference(shape):
    parts = gate_inputs(*shape)
    want = engram.engram_gate(*parts, 1e-6)
    assert_close(triton.engram_gate(*parts, 1e-6), want, "gate")
    x, key, value, weight = (part.transpose(0, -1).contiguous().transpose(0, -1) for part in parts)
    assert_close(triton.engram_gate(x, key, value, weight, 1e-6), want, "gate")


def test_triton_gate_does_not_hide_what_is_not_a_number():
    x, key, value, weight = gate_inputs(2, 2, 24)
    key[1, 0, 20] = torch.nan
    out = triton.engram_gate(x, key, value, weight, 1e-6).isnan()
    assert out[1, 0].all() and not out[0].any() and not out[1, 1].any()
    with pytest.raises(ValueError, match="engram_gate"):
        triton.engram_gate(x, key[:, :1], value, weight, 1e-6)


@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
def test_rows_of_a_table_are_those_of_the_reference(module):
    codes, scales = block_float.fp8_quantize(activations(9, 96))
    rows = torch.tensor([[0, 8, 3], [3, 3, 1]])
    assert torch.equal(
        module.table_rows(codes, scales, rows), engram.table_rows(codes, scales, rows)
    )
    assert module.table_rows(codes, scales, rows[:0]).shape == (0, 3, 96)
