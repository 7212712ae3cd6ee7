"""Dense and int8 products: agreement with the specification, and rows that ignore their batch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from test.kernels.triton_ops import on_device
from treadle.kernels.cpu import linear as cpu
from treadle.kernels.inputs import activations, strided, weights
from treadle.kernels.reference import linear as reference
from treadle.kernels.reference.quant import LEVELS, pack_q8, unpack_q8
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton.linear import Plan
from treadle.kernels.triton.linear import linear as triton_linear

ROW_COUNTS = (0, 1, 3, 4, 5, 12, 13, 16, 17, 31, 33, 100, 300)
SHAPES = ((16, 32), (100, 96), (48, 640), (5, 64))


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def windows(total: int, count: int = 18):
    """Seeded row ranges of all sizes, many of them short."""
    generator = torch.Generator().manual_seed(total)
    for i in range(count):
        size = min(total, int(torch.randint(1, (1, 20, total)[i % 3] + 1, (), generator=generator)))
        start = int(torch.randint(0, total - size + 1, (), generator=generator))
        yield slice(start, start + size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (320, 1024), (100, 36)], ids=str)
def test_dense_reference_row_is_the_same_bits_in_any_batch(dtype, shape, threads):
    x, w = activations(100, shape[1], dtype=dtype), weights(*shape, dtype=dtype)
    whole = reference.linear(x, w)
    for rows in windows(100):
        assert torch.equal(reference.linear(x[rows], w), whole[rows])


@pytest.mark.parametrize(
    "linear",
    [reference.linear, cpu.linear, on_device(triton_linear)],
    ids=["reference", "cpu", "triton"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_dense_product_is_x_times_transposed_weight(linear, dtype):
    w, bias = weights(100, 96, dtype=dtype), activations(1, 100, seed=1, dtype=dtype)[0]
    for rows in (0, 1, 33, 70):
        x = activations(rows, 96, dtype=dtype)
        assert_close(linear(x, w), F.linear(x, w), "linear")
        assert_close(linear(strided(x), w, bias), F.linear(x, w, bias), "linear")


@pytest.mark.parametrize("shape", [(30, 96), (7, 1030), (9, 5000)], ids=str)
def test_single_row_of_triton_agrees_with_the_reference(shape):
    """Also with fewer inputs than a block, and features that fill no program."""
    x = activations(1, shape[1], dtype=torch.bfloat16)
    w = weights(*shape, dtype=torch.bfloat16)
    bias = activations(1, shape[0], seed=1, dtype=torch.bfloat16)[0]
    op = on_device(triton_linear)
    assert_close(op(x, w), reference.linear(x, w), "linear")
    assert_close(op(strided(x), w, bias), reference.linear(x, w, bias), "linear")
    assert_close(op(x, w[3:], bias[3:]), reference.linear(x, w[3:], bias[3:]), "linear")


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        ((20480, 2560), Plan(16, 256, 4)),
        ((2560, 10240), Plan(4, 1024, 4)),
        ((28672, 4096), Plan(16, 256, 4)),
        ((4096, 14336), Plan(16, 256, 4)),
        ((4096, 2560), Plan(4, 512, 0)),
        ((2560, 2048), Plan(4, 1024, 0)),
    ],
    ids=str,
)
def test_programs_of_a_single_row_end_together(monkeypatch, shape, plan):
    """On 132 processors: as many programs on each, or nearly."""
    monkeypatch.setattr("treadle.kernels.triton.linear.num_processors", lambda: 132)
    assert Plan.of(*shape) == plan


def test_dense_float64_of_the_cpu_backend_ignores_the_batch():
    x, w = activations(50, 64, dtype=torch.float64), weights(64, 64, dtype=torch.float64)
    assert torch.equal(cpu.linear(x[7:8], w), cpu.linear(x, w)[7:8])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8_product_agrees_with_reference(isa, shape):
    w, bias = pack_q8(weights(*shape)), activations(1, shape[0], seed=2)[0]
    for rows in ROW_COUNTS:
        x = activations(rows, shape[1], seed=rows)
        assert_close(cpu.linear_q8(x, w), reference.linear_q8(x, w), "linear_q8")
        assert_close(cpu.linear_q8(x, w, bias), reference.linear_q8(x, w, bias), "linear_q8")


@pytest.mark.parametrize("shape", [(100, 96), (160, 640)], ids=str)
def test_int8_row_is_the_same_bits_in_any_batch(isa, threads, shape):
    x, w = activations(300, shape[1]), pack_q8(weights(*shape))
    bias = activations(1, shape[0], seed=2)[0]
    whole = cpu.linear_q8(x, w, bias)
    for rows in windows(300):
        assert torch.equal(cpu.linear_q8(x[rows], w, bias), whole[rows])


def test_int8_reference_row_is_the_same_bits_in_any_batch():
    x, w = activations(60, 96), pack_q8(weights(100, 96))
    whole = reference.linear_q8(x, w)
    for rows in windows(60, 12):
        assert torch.equal(reference.linear_q8(x[rows], w), whole[rows])


def test_int8_output_slice_is_those_columns(isa):
    x, w = activations(37, 96), pack_q8(weights(100, 96))
    whole = cpu.linear_q8(x, w)
    for start, end in ((0, 16), (16, 80), (64, 100), (32, 32), (0, 100)):
        part = cpu.linear_q8(x, w, out_start=start, out_end=end)
        assert torch.equal(part, whole[:, start:end])
        assert_close(part, reference.linear_q8(x, w, out_start=start, out_end=end), "linear_q8")


def test_int8_product_reads_strided_rows_and_writes_into_out(isa):
    x, w = activations(18, 96), pack_q8(weights(100, 96))
    out = torch.full((18, 130), float("nan"))
    result = cpu.linear_q8(strided(x), w, out=out[:, 7:107])
    assert result.data_ptr() == out[:, 7:].data_ptr()
    assert torch.equal(out[:, 7:107], cpu.linear_q8(x, w))
    assert out[:, :7].isnan().all() and out[:, 107:].isnan().all()


@pytest.mark.parametrize("rows", [3, 33])
def test_int8_product_rounds_weights_and_hardly_x(isa, rows):
    x, w = activations(rows, 640), pack_q8(weights(100, 640))
    want = F.linear(x.double(), unpack_q8(w).double())
    error = (cpu.linear_q8(x, w) - want).norm() / want.norm()
    assert error < 1e-4  # 1.3e-2 with 8 bits


@pytest.mark.parametrize("peak", [1e-37, 1e-32, 1e-20, 1e20])
def test_int8_product_of_groups_of_any_size_is_finite(isa, peak):
    x, w = activations(9, 64) / 80 * peak, pack_q8(weights(32, 64))
    want = F.linear(x.double(), unpack_q8(w).double()).float()
    torch.testing.assert_close(cpu.linear_q8(x, w), want, rtol=1e-3, atol=max(1e-28, 1e-3 * peak))
    assert_close(cpu.linear_q8(x, w) / peak, reference.linear_q8(x, w) / peak, "linear_q8")


def test_int8_product_of_zeros_is_the_bias(isa):
    w, bias = pack_q8(weights(20, 64)), activations(1, 20)[0]
    assert torch.equal(cpu.linear_q8(torch.zeros(19, 64), w, bias), bias.expand(19, 20))


def test_int8_extremes_do_not_overflow(isa):
    x, w = torch.full((17, 2048), -3.0), pack_q8(torch.full((16, 2048), -2.0))
    want = torch.full((17, 16), 6.0 * 2048)
    torch.testing.assert_close(cpu.linear_q8(x, w), want, rtol=2**-11, atol=0)  # float16 scales


def test_int8_bytes_of_x_at_their_limits_are_exact(isa):
    """Low bytes of -128 and 127, high ones of both ends, against weights of 127."""
    x = torch.zeros(17, 32)
    x[:, 0] = LEVELS
    x[:, 1:6] = torch.tensor([-LEVELS, 128, 127, -129, -128])
    x[:, 6:] = torch.arange(26) * 1249 - LEVELS
    want = x.sum(1, keepdim=True).expand(17, 16)
    w = pack_q8(torch.full((16, 32), 127.0))
    assert torch.equal(cpu.linear_q8(x, w), want * 127)
    assert torch.equal(cpu.linear_q8(-x, w), want * -127)


def test_int8_product_is_near_the_dense_one():
    x, w = activations(64, 640), weights(640, 640)
    want = F.linear(x, w)
    error = (reference.linear_q8(x, pack_q8(w)) - want).norm() / want.norm()
    assert error < 0.02


@pytest.mark.parametrize("linear_q8", [reference.linear_q8, cpu.linear_q8], ids=["ref", "cpu"])
def test_int8_product_refuses_what_does_not_fit(linear_q8):
    w = pack_q8(weights(100, 64))
    with pytest.raises(ValueError, match="64 inputs"):
        linear_q8(activations(2, 32), w)
    with pytest.raises(ValueError, match="multiples of 16"):
        linear_q8(activations(2, 64), w, out_start=8)
    with pytest.raises(ValueError, match="exceeds 100"):
        linear_q8(activations(2, 64), w, out_end=112)


def test_amx_and_avx512_give_the_same_bits(tmp_path, monkeypatch, use_isa):
    x, w = activations(45, 2048), pack_q8(weights(32, 2048))
    results = []
    for name in ("amx", "avx512"):
        use_isa(name, tmp_path, monkeypatch)
        results.append(cpu.linear_q8(x, w))
    assert torch.equal(results[0], results[1])


def test_avx2_and_avx512_give_the_same_bits(tmp_path, monkeypatch, use_isa):
    x, w = activations(45, 2048), pack_q8(weights(40, 2048))
    results = []
    for name in ("avx2", "avx512"):
        use_isa(name, tmp_path, monkeypatch)
        results.append(cpu.linear_q8(x, w))
    assert torch.equal(results[0], results[1])
