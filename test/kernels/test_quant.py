"""Int8 packing: layout, accuracy, refusals; C++ gives the reference's bits."""

from __future__ import annotations

import pytest
import torch

from treadle.kernels.cpu import quant as cpu
from treadle.kernels.inputs import activations, weights
from treadle.kernels.reference import quant as reference

PACKERS = pytest.mark.parametrize("pack_q8", [reference.pack_q8, cpu.pack_q8], ids=["ref", "cpu"])
SHAPES = [(1, 32), (16, 64), (100, 96), (64, 640)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cpu_packs_the_same_bits_as_the_reference(isa, shape):
    for scale in (1.0, 1e-4, 3e-6, 100.0):
        got, want = (pack(weights(*shape) * scale) for pack in (cpu.pack_q8, reference.pack_q8))
        assert torch.equal(got.data, want.data)
        assert torch.equal(got.scales, want.scales)
        assert (got.out_features, got.in_features) == shape


def test_layout_is_the_documented_one():
    weight = weights(40, 64)
    packed = reference.pack_q8(weight)
    assert packed.data.shape == (3, 16, 16, 4)
    assert packed.scales.shape == (3, 2, 16)
    value = packed.data[1, 9, 5, 2].float() * packed.scales[1, 1, 5].float()
    assert value == reference.unpack_q8(packed)[21, 38]
    assert abs(value - weight[21, 38]) <= packed.scales[1, 1, 5] / 2 * 1.001
    assert (packed.data[2, :, 8:] == 0).all()


@PACKERS
def test_unpacking_is_within_half_a_step(pack_q8):
    weight = weights(100, 96)
    packed = pack_q8(weight)
    # the scale is rounded to float16, so that the largest weight of a group may lie past 127 steps
    step = weight.view(100, 3, 32).abs().amax(2) / 127 * (0.5 + 127 * 2**-11)
    error = (reference.unpack_q8(packed) - weight).view(100, 3, 32).abs().amax(2)
    assert (error <= step).all()


@PACKERS
def test_groups_that_are_already_int8_pack_without_loss(pack_q8):
    generator = torch.Generator().manual_seed(0)
    quants = torch.randint(-126, 127, (32, 4, 32), generator=generator).float()
    quants[:, :, 3] = 127
    scales = torch.rand(32, 4, 1, generator=generator).half().float()
    weight = (quants * scales).flatten(1)
    assert torch.equal(reference.unpack_q8(pack_q8(weight)), weight)


@PACKERS
def test_packing_refuses_what_it_cannot_hold(pack_q8):
    with pytest.raises(ValueError, match="multiple of 32"):
        pack_q8(torch.zeros(16, 40))
    for value in (float("nan"), float("inf"), 1e9):
        weight = weights(20, 64)
        weight[17, 40] = value
        with pytest.raises(ValueError, match="not finite"):
            pack_q8(weight)


def test_joined_weights_equal_packing_the_joined_weight():
    parts = [weights(n, 64, seed=n) for n in (32, 16, 20)]
    joined = reference.concat_q8([reference.pack_q8(part) for part in parts])
    whole = reference.pack_q8(torch.cat(parts))
    assert torch.equal(joined.data, whole.data) and torch.equal(joined.scales, whole.scales)
    assert joined.out_features == 68


def test_joining_refuses_gaps_and_unequal_inputs():
    ragged, whole, other = (reference.pack_q8(weights(*s)) for s in ((20, 64), (16, 64), (16, 32)))
    with pytest.raises(ValueError, match="multiples of 16"):
        reference.concat_q8([ragged, whole])
    with pytest.raises(ValueError, match="inputs"):
        reference.concat_q8([whole, other])


def test_rows_are_those_of_the_unpacked_weight(isa):
    packed = reference.pack_q8(weights(100, 96))
    table = reference.unpack_q8(packed)
    for ids in ([], [0], [99, 3, 3, 16, 15]):
        wanted = torch.tensor(ids, dtype=torch.int64)
        got = cpu.q8_rows(packed, wanted)
        assert torch.equal(got, table[wanted])
        scaled = cpu.q8_rows(packed, wanted, 25.25)
        assert torch.equal(scaled, reference.q8_rows(packed, wanted, 25.25))


@pytest.mark.parametrize("q8_rows", [reference.q8_rows, cpu.q8_rows], ids=["ref", "cpu"])
@pytest.mark.parametrize("bad", [-1, 20, 2**40])
def test_rows_refuse_ids_outside_the_weight(q8_rows, bad):
    packed = reference.pack_q8(weights(20, 64))
    with pytest.raises(IndexError, match="20"):
        q8_rows(packed, torch.tensor([3, bad]))


def test_activations_are_quantised_row_by_row():
    x = activations(9, 96)
    x[4] = 0
    x[7] *= 1e-32
    quants, scales = reference.quantize_rows(x)
    assert (quants[4] == 0).all() and (scales[4] == 0).all()
    assert (quants[7] == 0).all()
    assert quants[0].abs().amax(1).tolist() == [reference.LEVELS] * 3
    error = (quants * scales.unsqueeze(2)).flatten(1) - x
    assert (error.abs() <= scales.repeat_interleave(32, 1) * 0.501 + 1e-30).all()
    assert torch.equal(reference.quantize_rows(x[5:6])[0], quants[5:6])
