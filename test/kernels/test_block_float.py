"""Block-scaled floats: the published vectors, rounding at ties, and what quantising twice keeps."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import block_float as cpu
from treadle.kernels.inputs import strided
from treadle.kernels.reference import block_float as bf
from treadle.kernels.reference.block_float import RowKind
from treadle.kernels.triton import block_float as triton_module

triton = ops_of(triton_module)

STEPS = torch.arange(-15, 16, 2).float() / 10  # deepseek-v41.md, appendix A
CODES = [15, 15, 14, 14, 13, 12, 10, 9, 1, 2, 4, 5, 6, 6, 7, 7]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_nvfp4_row_has_the_published_bytes():
    codes, scale = bf.nvfp4_quantize(STEPS)
    assert codes.tolist() == CODES
    assert scale.view(torch.uint8).tolist() == [0x28]
    assert bf.pack_nibbles(codes).numpy().tobytes().hex() == "ffeecd9a21546677"


def test_mxfp4_row_has_the_published_bytes():
    codes, scale = bf.mxfp4_quantize(STEPS.repeat(2))
    assert codes.tolist() == CODES * 2
    assert scale.tolist() == [125]


def test_fp8_row_has_the_published_values():
    codes, scale = bf.fp8_quantize(STEPS.repeat(2))
    assert scale.tolist() == [119]
    assert codes.float()[8:16].tolist() == [26, 80, 128, 176, 224, 288, 320, 384]


def test_e2m1_rounds_to_nearest_with_ties_to_the_even_code_and_keeps_the_sign_of_zero():
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 100.0, -0.25, -0.0])
    assert bf.e2m1_encode(ties).tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 8, 8]
    above = torch.nextafter(ties[:7], torch.tensor(9.0))
    assert bf.e2m1_encode(above).tolist() == [1, 2, 3, 4, 5, 6, 7]
    below = torch.nextafter(ties[:7], torch.tensor(0.0))
    assert bf.e2m1_encode(below).tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("power", [-100, -3, 0, 1, 60])
def test_scales_of_exact_powers_of_two_are_exact(power):
    exact = torch.tensor([2.0**power])
    assert bf.ceil_log2(exact).tolist() == [power]
    assert bf.ceil_log2(torch.nextafter(exact, torch.tensor(torch.inf))).tolist() == [power + 1]
    assert bf.e8m0_decode(torch.tensor([power + 127], dtype=torch.uint8)).item() == 2.0**power


def test_e8m0_knows_its_smallest_number_and_nan():
    decoded = bf.e8m0_decode(torch.tensor([0, 255], dtype=torch.uint8))
    assert decoded[0].item() == 2.0**-127
    assert decoded[1].isnan()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_rounding_a_rounded_row_changes_no_value(scale):
    x = normal(40, 64) * scale
    for quantise, back in (
        (bf.fp8_quantize, bf.fp8_dequantize),
        (bf.mxfp4_quantize, bf.mxfp4_dequantize),
    ):
        once = back(*quantise(x))
        assert torch.equal(back(*quantise(once)), once)


def test_rounding_a_rounded_nvfp4_row_changes_nothing_where_scales_are_normal():
    x = normal(40, 64)
    once = bf.nvfp4_dequantize(*bf.nvfp4_quantize(x))
    assert torch.equal(bf.nvfp4_dequantize(*bf.nvfp4_quantize(once)), once)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_errors_are_those_of_the_formats(rows):
    x = normal(rows, 64, seed=2)
    for rounded, limit in ((bf.fp8_round(x), 2.0**-4), (bf.mxfp4_round(x), 2.0**-2)):
        largest = (
            x.view(rows, 2, 32).abs().amax(2, keepdim=True).expand(-1, -1, 32).reshape(x.shape)
        )
        assert bool(((rounded - x).abs() <= largest * limit).all())


def test_nibbles_are_low_then_high():
    packed = bf.pack_nibbles(torch.tensor([1, 2, 15, 0], dtype=torch.uint8))
    assert packed.tolist() == [0x21, 0x0F]
    assert bf.unpack_nibbles(packed).tolist() == [1, 2, 15, 0]


def test_tile_scales_cover_32_by_32_also_at_ragged_edges():
    weight = torch.ones(40, 70).to(torch.float8_e4m3fn)
    scales = torch.tensor([[127, 128, 129], [130, 131, 132]], dtype=torch.uint8)
    wide = bf.fp8_tiles(weight, scales)
    assert wide.shape == (40, 70)
    assert wide[0, 0] == 1 and wide[0, 32] == 2 and wide[39, 69] == 32


def test_fp4_matrix_scales_each_row_in_groups_of_32():
    packed = bf.pack_nibbles(torch.full((2, 64), 2, dtype=torch.uint8))  # code 2 is 1.0
    scales = torch.tensor([[127, 128], [129, 126]], dtype=torch.uint8)
    wide = bf.fp4_matrix(packed, scales)
    assert wide[0, 0] == 1 and wide[0, 32] == 2 and wide[1, 0] == 4 and wide[1, 63] == 0.5


def test_a_row_scale_is_one_power_of_two():
    codes, scale = bf.fp8_row_quantize(STEPS.repeat(8))
    assert scale.item() == 2.0**-8
    assert codes.float()[8:10].tolist() == [26, 80]


def awkward(rows: int, scale: float) -> torch.Tensor:
    """Normal rows, with zeros, a huge row, infinities and not-a-number in them."""
    x = normal(rows, 64, seed=3) * scale
    x[::7, ::5] = 0
    x[1::7, ::3] = -0.0
    x[3::50] = 0
    x[5::50] = 3e38
    x[7::50, 3], x[8::50, 40], x[9::50, 63] = torch.inf, torch.nan, -torch.inf
    return x


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal numbers with equal signs of zero; which not-a-number it is does not matter."""
    return bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("scale", [1e-40, 1e-6, 1e-3, 1.0, 300.0, 1e30])
@pytest.mark.parametrize("kind", list(RowKind))
def test_cpu_rows_are_the_bytes_of_the_reference(isa, kind, scale):
    for rows in (0, 1, 100):
        x = awkward(rows, scale)
        want = bf.encode_rows(x, kind)
        assert want.shape == (rows, kind.row_bytes(64))
        assert torch.equal(cpu.encode_rows(x, kind), want)
        assert torch.equal(cpu.encode_rows(strided(x), kind), want)
        back = bf.decode_rows(want, kind, 64)
        assert same_bits(cpu.decode_rows(want, kind, 64), back)
        wide = torch.cat((want, want), 1)[:, want.shape[1] :]
        assert same_bits(cpu.decode_rows(wide, kind, 64), back)


@pytest.mark.parametrize("kind", list(RowKind))
def test_cpu_decodes_every_byte_as_the_reference(isa, kind):
    rows = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, kind.row_bytes(32))
    assert same_bits(cpu.decode_rows(rows, kind, 32), bf.decode_rows(rows, kind, 32))


@pytest.mark.parametrize("name", ["fp8_round", "mxfp4_round"])
def test_cpu_rounds_as_the_reference(isa, name):
    for scale in (1e-40, 1e-6, 1.0, 1e30):
        x = awkward(100, scale).view(25, 4, 64)
        assert same_bits(vars(cpu)[name](x), vars(bf)[name](x))
        assert same_bits(vars(cpu)[name](strided(x)), vars(bf)[name](x))


def test_cpu_dequantises_codes_and_scales_that_lie_apart(isa):
    codes, scales = bf.fp8_quantize(awkward(30, 1.0).view(10, 3, 64))
    want = bf.fp8_dequantize(codes, scales)
    assert same_bits(cpu.fp8_dequantize(codes, scales), want)
    assert same_bits(cpu.fp8_dequantize(codes[:, 1], scales[:, 1]), want[:, 1])


def test_a_row_has_the_same_bytes_in_any_batch(isa):
    x = awkward(2000, 1.0)
    for kind in RowKind:
        whole = cpu.encode_rows(x, kind)
        for rows in (slice(0, 1), slice(7, 60), slice(1999, 2000)):
            assert torch.equal(cpu.encode_rows(x[rows], kind), whole[rows])


@pytest.mark.parametrize("kind", [RowKind.FP8, RowKind.MXFP4, RowKind.FP8_ROW])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_broken_value_stays_visible(kind, value):
    x = torch.ones(1, 32)
    x[0, 5] = value
    assert bf.decode_rows(bf.encode_rows(x, kind), kind, 32)[0, 5].isnan()


def test_other_rows_run_the_reference():
    x = normal(3, 48).double()
    assert torch.equal(cpu.encode_rows(x, RowKind.NVFP4), bf.encode_rows(x.float(), RowKind.NVFP4))


@pytest.mark.parametrize("scale", [1e-40, 1.0, 1e30])
@pytest.mark.parametrize("kind", list(RowKind))
def test_triton_rows_are_the_bytes_of_the_reference(kind, scale):
    """But for rows that are broken: which not-a-number a value is differs."""
    for rows in (0, 11):
        x = awkward(rows, scale)
        want = bf.encode_rows(x, kind)
        whole = x.isfinite().all(1)
        for given in (x, strided(x)):
            got = triton.encode_rows(given, kind)
            assert torch.equal(got[whole], want[whole])
            assert same_bits(bf.decode_rows(got, kind, 64), bf.decode_rows(want, kind, 64))
        back = bf.decode_rows(want, kind, 64)
        assert same_bits(triton.decode_rows(want, kind, 64), back)
        wide = torch.cat((want, want), 1)[:, want.shape[1] :]
        assert same_bits(triton.decode_rows(wide, kind, 64), back)


@pytest.mark.parametrize("kind", list(RowKind))
def test_triton_decodes_every_byte_as_the_reference(kind):
    """Each of eight columns takes every value, codes and scales alike."""
    rows = torch.arange(kind.row_bytes(256)) + 8 * torch.arange(32)[:, None]
    rows = (rows % 256).to(torch.uint8)
    assert same_bits(triton.decode_rows(rows, kind, 256), bf.decode_rows(rows, kind, 256))


def test_triton_rounds_at_ties_as_the_reference():
    """Every code of e4m3 and e2m1, the points halfway between them, and their neighbours."""
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middles = torch.cat((codes, (codes[1:] + codes[:-1]) / 2))
    near = [torch.nextafter(middles, torch.tensor(v)) for v in (0.0, 1e9)]
    values = torch.cat((middles, *near))
    values = torch.cat((values, -values))
    values = torch.cat((values, torch.zeros(-len(values) % 30))).view(-1, 2, 15)
    x = torch.cat((values[..., :1], values), 2)
    for kind, largest in ((RowKind.FP8, 448.0), (RowKind.MXFP4, 6.0), (RowKind.NVFP4, 6.0)):
        x[..., 0] = largest  # a scale of one
        rows = x.clamp(-largest, largest).flatten(1)
        assert torch.equal(triton.encode_rows(rows, kind), bf.encode_rows(rows, kind))


@pytest.mark.parametrize("name", ["fp8_round", "mxfp4_round"])
def test_triton_rounds_as_the_reference(name):
    for scale in (1e-40, 1.0, 1e30):
        x = awkward(20, scale).view(5, 4, 64)
        assert same_bits(vars(triton)[name](x), vars(bf)[name](x))
        assert same_bits(vars(triton)[name](strided(x)), vars(bf)[name](x))


def test_triton_dequantises_codes_and_scales_that_lie_apart():
    codes, scales = bf.fp8_quantize(awkward(30, 1.0).view(10, 3, 64))
    want = bf.fp8_dequantize(codes, scales)
    assert same_bits(triton.fp8_dequantize(codes, scales), want)
    assert same_bits(triton.fp8_dequantize(codes[:, 1], scales[:, 1]), want[:, 1])


def test_triton_runs_the_reference_on_other_rows():
    x = normal(3, 48)
    assert torch.equal(triton.encode_rows(x, RowKind.NVFP4), bf.encode_rows(x, RowKind.NVFP4))
