"""Writes into pages: all backends on the same rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import on_device
from treadle.kernels.attention_inputs import Shape, make_stream
from treadle.kernels.cpu.kv_write import kv_write as cpu
from treadle.kernels.reference.kv_write import kv_write as reference
from treadle.kernels.triton.kv_write import kv_write as triton_kv_write

triton = on_device(triton_kv_write)
OPS = pytest.mark.parametrize("op", [reference, cpu, triton], ids=["reference", "cpu", "triton"])
CHECKED = pytest.mark.parametrize("op", [reference, cpu], ids=["reference", "cpu"])
SHAPE = Shape(heads=2, kv_heads=2, head_dim=16)
NUM_PAGES, PAGE_SIZE = 5, 4


def make_pools(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    size = (NUM_PAGES, PAGE_SIZE, SHAPE.kv_heads, SHAPE.head_dim)
    return torch.full(size, -7.0, dtype=dtype), torch.full(size, -9.0, dtype=dtype)


@OPS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rows_land_where_they_are_sent_and_nowhere_else(op, dtype: torch.dtype):
    rows = make_stream(SHAPE, 6, seed=0, dtype=torch.promote_types(dtype, torch.float32))
    dst = torch.tensor([19, 4, -1, 0, -1, 11])
    pools = make_pools(dtype)
    op(rows.k, rows.v, *pools, dst)
    for pool, new, untouched in ((pools[0], rows.k, -7.0), (pools[1], rows.v, -9.0)):
        flat = pool.flatten(0, 1)
        for i, to in enumerate(dst.tolist()):
            if to >= 0:
                assert torch.equal(flat[to], new[i].to(dtype))
        others = [x for x in range(NUM_PAGES * PAGE_SIZE) if x not in dst.tolist()]
        assert (flat[others] == untouched).all()


@OPS
def test_replayed_rows_write_nothing(op):
    rows = make_stream(SHAPE, 3, seed=0)
    pools = make_pools(torch.float32)
    op(rows.k, rows.v, *pools, torch.full((3,), -1))
    assert (pools[0] == -7).all()
    assert (pools[1] == -9).all()


@CHECKED
@pytest.mark.parametrize("wrong", [-2, NUM_PAGES * PAGE_SIZE])
def test_destination_outside_the_pool_is_refused(op, wrong: int):
    rows = make_stream(SHAPE, 2, seed=0)
    pools = make_pools(torch.float32)
    with pytest.raises(ValueError, match=f"row 1 goes to page row {wrong}"):
        op(rows.k, rows.v, *pools, torch.tensor([0, wrong]))
    assert (pools[0] == -7).all()


@pytest.mark.parametrize("wrong", [-2, NUM_PAGES * PAGE_SIZE, 1 << 40])
def test_triton_writes_nothing_outside_the_pool(wrong: int):
    rows = make_stream(SHAPE, 2, seed=0)
    pools = make_pools(torch.float32)
    triton(rows.k, rows.v, *pools, torch.tensor([wrong, 0]))
    assert torch.equal(pools[0][0, 0], rows.k[1])
    assert (pools[0].flatten(0, 1)[1:] == -7).all()


@OPS
def test_no_rows(op):
    rows = make_stream(SHAPE, 0, seed=0)
    op(rows.k, rows.v, *make_pools(torch.float32), torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("op", [cpu, triton], ids=["cpu", "triton"])
def test_rounding_is_torchs_for_every_kind_of_float(op):
    """Ties, overflow to infinity, subnormals, infinities and NaN."""
    generator = torch.Generator().manual_seed(0)
    size = (64, SHAPE.kv_heads, SHAPE.head_dim)
    bits = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int64)
    bits[::2] = bits[::2] & ~0xFFFF | 0x8000
    k = bits.to(torch.int32).view(torch.float32)
    k[0, 0, :4] = torch.tensor([float("inf"), -float("inf"), float("nan"), 3.4e38])
    pool = torch.zeros(16, 4, *size[1:], dtype=torch.bfloat16)
    op(k, k, pool, pool.clone(), torch.arange(64))
    torch.testing.assert_close(pool.flatten(0, 1), k.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_many_rows_on_all_threads():
    shape = Shape(1, 1, 256)
    rows = make_stream(shape, 600, seed=1)
    pools = torch.zeros(40, 16, 1, 256), torch.zeros(40, 16, 1, 256)
    dst = torch.randperm(640)[:600]
    cpu(rows.k, rows.v, *pools, dst)
    assert torch.equal(pools[0].flatten(0, 1)[dst], rows.k)
    assert torch.equal(pools[1].flatten(0, 1)[dst], rows.v)


@pytest.mark.parametrize("op", [cpu, triton], ids=["cpu", "triton"])
def test_pools_that_cannot_be_written_are_refused(op):
    rows = make_stream(SHAPE, 2, seed=0)
    k, v = make_pools(torch.float32)
    with pytest.raises(TypeError, match="pool"):
        op(rows.k, rows.v, k, v.half(), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="pool must be contiguous"):
        op(rows.k, rows.v, k[:, ::2], v[:, ::2], torch.tensor([0, 1]))
