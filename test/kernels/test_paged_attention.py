"""Attention through the page table: reference against the formula, each backend against it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import on_device
from test.naive_attention import naive_attention
from treadle.kernels.attention_inputs import (
    PagedOp,
    Pages,
    Shape,
    Span,
    Stream,
    make_pages,
    make_stream,
    paged_step,
)
from treadle.kernels.cpu.paged_attention import paged_attention as cpu
from treadle.kernels.reference.paged_attention import paged_attention as reference
from treadle.kernels.triton.paged_attention import paged_attention as triton_paged_attention

OPS = pytest.mark.parametrize(
    "op", [pytest.param(reference, id="reference"), pytest.param(cpu, id="cpu")]
)
ISAS = pytest.mark.parametrize("cpu_isa", ["portable", "avx2", "avx512"], indirect=True)
SMALL = Shape(heads=4, kv_heads=2, head_dim=16)
EVERYTHING = 1 << 40
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
# scores reach 16, and a float32 sum of 256 products is off by up to 1e-6 of that
ATOL, RTOL = 3e-5, 1e-5
triton = on_device(triton_paged_attention)


def in_chunks(op: PagedOp, stream: Stream, cuts: Sequence[int], pages: Pages) -> Tensor:
    """The whole stream through slot 1, cut at the given positions."""
    edges = [0, *cuts, len(stream.q)]
    spans = [Span(stream, 1, a, b) for a, b in zip(edges, edges[1:], strict=False)]
    return torch.cat([paged_step(op, [span], pages)[0] for span in spans])


def pages_for(stream: Stream, dtype: torch.dtype, page_size: int = 16, seed: int = 0) -> Pages:
    return make_pages(stream.shape, [len(stream.q)], page_size, dtype, seed)


@pytest.mark.parametrize("shape", [Shape(4, 4, 8), Shape(6, 2, 8), Shape(4, 1, 8)], ids=str)
@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_reference_is_the_textbook_formula(shape: Shape, page_size: int):
    stream = make_stream(shape, 130, seed=1, dtype=F64)
    out = in_chunks(reference, stream, [1, 50, 51], pages_for(stream, F64, page_size))
    want = naive_attention(stream, EVERYTHING, 0, F64)
    torch.testing.assert_close(out, want, atol=1e-12, rtol=0)


@ISAS
@pytest.mark.parametrize("shape", [Shape(4, 1, 256), Shape(9, 3, 64), Shape(2, 2, 128)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("page_size", [16])
def test_cpu_is_the_reference(shape: Shape, dtype: torch.dtype, page_size: int, cpu_isa: str):
    stream = make_stream(shape, 440, seed=3)
    pages = pages_for(stream, dtype, page_size)
    got = in_chunks(cpu, stream, [330, 331], pages)
    torch.testing.assert_close(got, in_chunks(reference, stream, [], pages), atol=ATOL, rtol=RTOL)
    exact = naive_attention(stream, EVERYTHING, 0, dtype).float()
    torch.testing.assert_close(got, exact, atol=ATOL, rtol=RTOL)


@OPS
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_chunks_are_bit_equal_to_one_call(op: PagedOp, dtype: torch.dtype):
    rng = random.Random(0)
    stream = make_stream(SMALL, 400, seed=2, dtype=F64 if dtype is F64 else F32)
    whole = in_chunks(op, stream, [], pages_for(stream, dtype))
    for seed in range(6):
        cuts = sorted(rng.sample(range(1, 400), rng.randrange(1, 9)))
        assert torch.equal(in_chunks(op, stream, cuts, pages_for(stream, dtype, seed=seed)), whole)


@ISAS
def test_one_row_at_a_time_is_bit_equal_to_one_call(cpu_isa: str):
    shape = Shape(6, 2, 32)
    stream = make_stream(shape, 330, seed=4)
    whole = in_chunks(cpu, stream, [], pages_for(stream, F32))
    rows = in_chunks(cpu, stream, range(1, 330), pages_for(stream, F32))
    assert torch.equal(rows, whole)


@OPS
def test_mixed_step_is_bit_equal_to_alone(op: PagedOp):
    ends = [700, 5, 300, 64, 1]
    streams = [make_stream(SMALL, n, seed=i) for i, n in enumerate(ends)]
    together, alone = (make_pages(SMALL, ends, 16, F32, seed) for seed in (0, 1))
    for pages in (together, alone):
        paged_step(op, [Span(streams[0], 1, 0, 699), Span(streams[2], 3, 0, 200)], pages)
    spans = [
        Span(streams[0], 1, 699, 700),
        Span(streams[2], 3, 200, 300, q_rows=20),
        Span(streams[1], 2, 0, 5),
        Span(streams[3], 4, 0, 64, q_rows=0),
        Span(streams[4], 5, 0, 1),
    ]
    for span, out in zip(spans, paged_step(op, spans, together, padding=3), strict=True):
        assert torch.equal(paged_step(op, [span], alone)[0], out)
        assert not out.isnan().any()


def test_threads_do_not_change_a_bit():
    shape = Shape(4, 1, 64)
    stream = make_stream(shape, 900, seed=5)
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            results.append(in_chunks(cpu, stream, [500, 501, 530, 531], pages_for(stream, F32)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@OPS
def test_replayed_row_reads_the_cached_page(op: PagedOp):
    """Rows below a hit run again without being written; they see what the pages hold."""
    stream, other = make_stream(SMALL, 90, seed=6), make_stream(SMALL, 90, seed=7)
    pages = pages_for(stream, F32)
    want = in_chunks(op, stream, [], pages)[40:]
    runs = torch.tensor([[1, 0, 50, 40]])
    out = op(stream.q[40:], pages.k, pages.v, pages.table, runs, SMALL.scale)
    assert torch.equal(out, want)
    in_chunks(op, other, [], pages)
    changed = op(stream.q[40:], pages.k, pages.v, pages.table, runs, SMALL.scale)
    assert not torch.equal(changed, want)


@OPS
def test_two_slots_may_share_pages(op: PagedOp):
    stream = make_stream(SMALL, 64, seed=8)
    pages = make_pages(SMALL, [64, 64], 16, F32)
    paged_step(op, [Span(stream, 1, 0, 64)], pages)
    pages.table[2, :3] = pages.table[1, :3]
    runs = torch.tensor([[1, 0, 8, 40], [2, 8, 8, 40]])
    q = torch.cat([stream.q[40:48]] * 2)
    out = op(q, pages.k, pages.v, pages.table, runs, SMALL.scale)
    assert torch.equal(out[:8], out[8:])


@OPS
@pytest.mark.parametrize(
    "run", [[2, 0, 4, 0], [-1, 0, 4, 0], [1, 7, 4, 0], [1, 0, 4, -1], [1, 0, 4, 45], [1, -1, 4, 0]]
)
def test_run_outside_its_tensors_is_refused(op: PagedOp, run: list[int]):
    stream = make_stream(SMALL, 10, seed=0)
    pages = make_pages(SMALL, [32], 16, F32)
    with pytest.raises(ValueError, match="run 0"):
        op(stream.q, pages.k, pages.v, pages.table, torch.tensor([run]), SMALL.scale)


@OPS
@pytest.mark.parametrize("page", [-1, 4])
def test_page_outside_the_pool_is_refused(op: PagedOp, page: int):
    stream = make_stream(SMALL, 20, seed=0)
    pages = make_pages(SMALL, [20], 16, F32)
    pages.table[1, 1] = page
    with pytest.raises(ValueError, match="run 0"):
        paged_runs = torch.tensor([[1, 0, 4, 16]])
        op(stream.q, pages.k, pages.v, pages.table, paged_runs, SMALL.scale)
    # a page that no row reaches is nobody's business
    op(stream.q, pages.k, pages.v, pages.table, torch.tensor([[1, 0, 4, 12]]), SMALL.scale)


@OPS
def test_empty_calls(op: PagedOp):
    stream = make_stream(SMALL, 9, seed=0)
    pages = make_pages(SMALL, [16], 16, F32)
    assert paged_step(op, [Span(stream, 1, 0, 9, q_rows=0)], pages)[0].shape == (0, 4, 16)
    runs = torch.empty(0, 4, dtype=torch.int64)
    out = op(stream.q, pages.k, pages.v, pages.table, runs, SMALL.scale)
    assert torch.equal(out, torch.zeros(9, 4, 16))


def test_head_sizes_that_the_tiles_lack_are_refused():
    for shape in (Shape(2, 1, 24), Shape(3, 2, 16), Shape(1, 1, 528)):
        stream = make_stream(shape, 4, seed=0)
        pages = make_pages(shape, [4], 4, F32)
        with pytest.raises(ValueError, match="head size must be a multiple of 16 up to 512"):
            paged_step(cpu, [Span(stream, 1, 0, 4)], pages)


@pytest.mark.parametrize("shape", [Shape(4, 1, 256), Shape(9, 3, 64), Shape(2, 2, 80)], ids=str)
@pytest.mark.parametrize("kinds", [(F32, F32), (F32, BF16), (BF16, BF16)], ids=str)
def test_triton_is_the_formula(shape: Shape, kinds: tuple[torch.dtype, torch.dtype]):
    """Rows and pool of `kinds`; runs of many rows, of one with its keys split, and of the rest."""
    stream = make_stream(shape, 140, seed=3, dtype=kinds[0])
    pages = pages_for(stream, kinds[1])
    got = in_chunks(triton, stream, [100, 101], pages)
    exact = naive_attention(stream, EVERYTHING, 0, kinds[1]).float()
    bound = ATOL if kinds[0] is F32 else 2e-2
    torch.testing.assert_close(got.float(), exact, atol=bound, rtol=bound)


@pytest.mark.parametrize("padding", [3])
def test_triton_mixed_step_is_the_reference(padding: int):
    ends = [300, 5, 120, 64, 1]
    streams = [make_stream(SMALL, n, seed=i) for i, n in enumerate(ends)]
    pages = make_pages(SMALL, ends, 16, F32)
    paged_step(reference, [Span(streams[0], 1, 0, 299), Span(streams[2], 3, 0, 20)], pages)
    spans = [
        Span(streams[0], 1, 299, 300),
        Span(streams[2], 3, 20, 120, q_rows=20),
        Span(streams[1], 2, 0, 5),
        Span(streams[3], 4, 0, 64, q_rows=0),
        Span(streams[4], 5, 0, 1),
    ]
    got = paged_step(triton, spans, pages, padding)
    for one, want in zip(got, paged_step(reference, spans, pages, padding), strict=True):
        torch.testing.assert_close(one, want, atol=ATOL, rtol=RTOL)


def test_triton_decode_step_is_the_reference():
    """As many runs as rows: captured in a graph, so a request of length one is padding there."""
    ends = [190, 1, 64, 65, 17]
    streams = [make_stream(SMALL, n, seed=i) for i, n in enumerate(ends)]
    pages = make_pages(SMALL, ends, 16, F32)
    for slot, stream in enumerate(streams, 1):
        paged_step(reference, [Span(stream, slot, 0, len(stream.q) - 1)], pages)
    spans = [Span(x, i, len(x.q) - 1, len(x.q)) for i, x in enumerate(streams, 1)]
    got = paged_step(triton, spans, pages)
    for one, want in zip(got, paged_step(reference, spans, pages), strict=True):
        torch.testing.assert_close(one, want, atol=ATOL, rtol=RTOL)


def test_triton_rows_of_no_run_are_zero():
    stream = make_stream(SMALL, 9, seed=0)
    pages = make_pages(SMALL, [16], 16, F32)
    runs = torch.empty(0, 4, dtype=torch.int64)
    out = triton(stream.q, pages.k, pages.v, pages.table, runs, SMALL.scale)
    assert torch.equal(out, torch.zeros(9, 4, 16))


def test_triton_refuses_layouts_it_does_not_read():
    stream = make_stream(SMALL, 4, seed=0)
    pages = make_pages(SMALL, [4], 4, F32)
    runs = torch.tensor([[1, 0, 4, 0]])
    with pytest.raises(ValueError, match="do not fit"):
        triton(stream.q[:, :3], pages.k, pages.v, pages.table, runs, 1.0)
    with pytest.raises(TypeError, match="contiguous"):
        triton(stream.q, pages.k[:, ::2], pages.v[:, ::2], pages.table, runs, 1.0)
