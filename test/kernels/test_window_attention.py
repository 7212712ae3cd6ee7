"""Window attention: reference against the textbook formula, C++ against the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from test.naive_attention import naive_attention
from treadle.kernels.attention_inputs import (
    Rings,
    Shape,
    Span,
    Stream,
    WindowOp,
    make_rings,
    make_stream,
    window_step,
)
from treadle.kernels.cpu.window_attention import window_attention as cpu
from treadle.kernels.reference.window_attention import window_attention as reference

OPS = pytest.mark.parametrize(
    "op", [pytest.param(reference, id="reference"), pytest.param(cpu, id="cpu")]
)
ISAS = pytest.mark.parametrize("cpu_isa", ["portable", "avx2", "avx512"], indirect=True)
SMALL = Shape(heads=4, kv_heads=2, head_dim=16)
WINDOW, RING = 70, 80
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
# scores reach 16, and a float32 sum of 256 products is off by up to 1e-6 of that
ATOL, RTOL = 3e-5, 1e-5


def in_chunks(
    op: WindowOp, stream: Stream, cuts: Sequence[int], rings: Rings, window: int = WINDOW
) -> Tensor:
    """The whole stream through slot 1, cut at the given positions."""
    edges = [0, *cuts, len(stream.q)]
    spans = [Span(stream, 1, a, b) for a, b in zip(edges, edges[1:], strict=False)]
    return torch.cat([window_step(op, [span], rings, window)[0] for span in spans])


def random_cuts(rng: random.Random, end: int) -> list[int]:
    return sorted(rng.sample(range(1, end), rng.randrange(1, 9)))


def assert_same_rings(a: Rings, b: Rings) -> None:
    assert torch.equal(a.tags, b.tags)
    for x, y in ((a.k, b.k), (a.v, b.v)):
        assert torch.equal(x.isnan(), y.isnan())
        assert torch.equal(x.nan_to_num(), y.nan_to_num())


@pytest.mark.parametrize("shape", [Shape(4, 4, 8), Shape(6, 2, 8), Shape(4, 1, 8)])
@pytest.mark.parametrize("cuts", [[], [1], [5, 6, 7, 60], [70, 140], [33, 197]])
def test_reference_is_the_textbook_formula(shape: Shape, cuts: list[int]):
    stream = make_stream(shape, 210, seed=1, dtype=F64)
    out = in_chunks(reference, stream, cuts, make_rings(shape, 2, RING, F64))
    torch.testing.assert_close(out, naive_attention(stream, WINDOW, 0, F64), atol=1e-12, rtol=0)


@ISAS
@pytest.mark.parametrize("shape", [Shape(4, 1, 256), Shape(9, 3, 64), Shape(2, 2, 80)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("window", [1, 100, 320])
def test_cpu_is_the_reference(shape: Shape, dtype: torch.dtype, window: int, cpu_isa: str):
    stream = make_stream(shape, 440, seed=3)
    rings = [make_rings(shape, 2, window + 16, dtype) for _ in range(2)]
    want = in_chunks(reference, stream, [330, 331], rings[0], window)
    got = in_chunks(cpu, stream, [330, 331], rings[1], window)
    torch.testing.assert_close(got, want, atol=ATOL, rtol=RTOL)
    exact = naive_attention(stream, window, 0, dtype).float()
    torch.testing.assert_close(got, exact, atol=ATOL, rtol=RTOL)
    assert_same_rings(rings[1], rings[0])


@OPS
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_chunks_are_bit_equal_to_one_call(op: WindowOp, dtype: torch.dtype):
    rng = random.Random(0)
    stream = make_stream(SMALL, 300, seed=2)
    rings = make_rings(SMALL, 2, RING, dtype)
    whole = in_chunks(op, stream, [], rings)
    for _ in range(8):
        other = make_rings(SMALL, 2, RING, dtype)
        assert torch.equal(in_chunks(op, stream, random_cuts(rng, 300), other), whole)
        assert_same_rings(other, rings)


def test_reference_is_bit_equal_in_float64_too():
    rng = random.Random(0)
    stream = make_stream(SMALL, 200, seed=2, dtype=F64)
    whole = in_chunks(reference, stream, [], make_rings(SMALL, 2, RING, F64))
    for _ in range(4):
        rings = make_rings(SMALL, 2, RING, F64)
        assert torch.equal(in_chunks(reference, stream, random_cuts(rng, 200), rings), whole)
    assert torch.equal(in_chunks(cpu, stream, [7], make_rings(SMALL, 2, RING, F64)), whole)


@ISAS
def test_one_row_at_a_time_is_bit_equal_to_one_call(cpu_isa: str):
    shape = Shape(6, 2, 32)
    stream = make_stream(shape, 330, seed=4)
    whole = in_chunks(cpu, stream, [], make_rings(shape, 2, 300, F32), 280)
    rows = in_chunks(cpu, stream, range(1, 330), make_rings(shape, 2, 300, F32), 280)
    assert torch.equal(rows, whole)


@OPS
def test_mixed_step_is_bit_equal_to_alone(op: WindowOp):
    def spans(first: bool) -> list[Span]:
        s = [make_stream(SMALL, 260, seed=i) for i in range(4)]
        if first:
            return [Span(s[0], 1, 0, 199), Span(s[1], 2, 0, 5), Span(s[2], 4, 100, 230, floor=100)]
        return [
            Span(s[0], 1, 199, 200),
            Span(s[2], 4, 230, 260, floor=100, q_rows=7),
            Span(s[3], 3, 0, 150),
            Span(s[1], 2, 5, 200, q_rows=0),
        ]

    together = make_rings(SMALL, 5, RING, F32)
    alone = make_rings(SMALL, 5, RING, F32)
    for first in (True, False):
        mixed = window_step(op, spans(first), together, WINDOW, padding=3)
        for span, out in zip(spans(first), mixed, strict=True):
            assert torch.equal(window_step(op, [span], alone, WINDOW)[0], out)
            assert not out.isnan().any()
    assert_same_rings(together, alone)


def test_threads_do_not_change_a_bit():
    shape = Shape(4, 1, 64)
    stream = make_stream(shape, 900, seed=5)
    cuts = [500, 501, 502, 530, 531]
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            results.append(in_chunks(cpu, stream, cuts, make_rings(shape, 2, 520, F32), 512))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@OPS
@pytest.mark.parametrize("floor", [0, 1, 63, 64, 100])
def test_floor_hides_lower_positions(op: WindowOp, floor: int):
    stream = make_stream(SMALL, 200, seed=6)
    rings = make_rings(SMALL, 2, RING, F32)
    span = Span(stream, 1, floor, 120, floor=floor)
    parts = [window_step(op, [span], rings, WINDOW)[0]]
    parts += window_step(op, [Span(stream, 1, 120, 200, floor=floor)], rings, WINDOW)
    want = naive_attention(stream, WINDOW, floor)[floor:].float()
    torch.testing.assert_close(torch.cat(parts), want, atol=ATOL, rtol=RTOL)


@OPS
def test_rows_that_do_not_feel_the_floor_are_bit_equal_to_cold(op: WindowOp):
    stream = make_stream(SMALL, 260, seed=7)
    cold = in_chunks(op, stream, [], make_rings(SMALL, 2, RING, F32))
    for floor in (31, 64, 97):
        rings = make_rings(SMALL, 2, RING, F32)
        hit = window_step(op, [Span(stream, 1, floor, 260, floor=floor)], rings, WINDOW)[0]
        free = floor + WINDOW - 1
        assert torch.equal(hit[WINDOW - 1 :], cold[free:])
        assert not torch.equal(hit[WINDOW - 2], cold[free - 1])


@OPS
def test_dropped_rows_are_bit_equal_to_all_rows(op: WindowOp):
    """A layer that puts out only its last rows (staircase) computes those as if it put out all."""
    stream = make_stream(SMALL, 220, seed=8)
    for q_rows in (0, 1, 17, 150):
        rings = [make_rings(SMALL, 2, RING, F32) for _ in range(2)]
        every = window_step(op, [Span(stream, 1, 40, 220, floor=40)], rings[0], WINDOW)[0]
        span = Span(stream, 1, 40, 220, q_rows=q_rows, floor=40)
        last = window_step(op, [span], rings[1], WINDOW)[0]
        assert torch.equal(last, every[180 - q_rows :])
        assert_same_rings(*rings)


@OPS
def test_chunk_longer_than_the_ring_keeps_its_last_rows(op: WindowOp):
    stream = make_stream(SMALL, 3 * RING + 5, seed=9)
    rings = make_rings(SMALL, 2, RING, F32)
    in_chunks(op, stream, [RING // 2], rings)
    x = torch.arange(len(stream.q) - RING, len(stream.q))
    assert torch.equal(rings.tags[1, x % RING], x)
    assert torch.equal(rings.k[1, x % RING], stream.k[x])
    assert torch.equal(rings.v[1, x % RING], stream.v[x])
    assert (rings.tags[0] == -1).all()
    assert rings.k[0].isnan().all()


@OPS
def test_stale_rows_of_a_slot_never_reach_an_output(op: WindowOp):
    """The previous owner's rows are NaN here; the new owner starts at the end of the ring."""
    stream = make_stream(SMALL, 330, seed=10)
    rings = make_rings(SMALL, 2, RING, BF16)
    start = 2 * RING - 3
    first = Span(stream, 1, start, start + 9, floor=start)
    assert not window_step(op, [first], rings, WINDOW)[0].isnan().any()
    for x in range(start + 9, start + 2 * RING):
        span = Span(stream, 1, x, x + 1, floor=start)
        assert not window_step(op, [span], rings, WINDOW)[0].isnan().any()


@OPS
@pytest.mark.parametrize("lost", [41, 70, 109])
def test_missing_history_raises_and_writes_nothing(op: WindowOp, lost: int):
    stream = make_stream(SMALL, 130, seed=11)
    rings = make_rings(SMALL, 2, RING, F32)
    window_step(op, [Span(stream, 1, 0, 110)], rings, WINDOW)
    rings.tags[1, lost % RING] = lost - RING
    before = rings.k.clone(), rings.tags.clone()
    with pytest.raises(RuntimeError, match=f"slot 1 has no window row of position {lost}"):
        window_step(op, [Span(stream, 1, 110, 130)], rings, WINDOW)
    assert torch.equal(rings.k.nan_to_num(), before[0].nan_to_num())
    assert torch.equal(rings.tags, before[1])
    # the lowest key of row 110 is 41, and nobody below the floor is missed
    window_step(op, [Span(stream, 1, 110, 130, floor=lost + 1)], rings, WINDOW)


@OPS
def test_history_below_the_window_may_be_gone(op: WindowOp):
    stream = make_stream(SMALL, 130, seed=11)
    rings = make_rings(SMALL, 2, RING, F32)
    window_step(op, [Span(stream, 1, 0, 110)], rings, WINDOW)
    rings.tags[1, 40 % RING] = -1
    window_step(op, [Span(stream, 1, 110, 130)], rings, WINDOW)


@OPS
@pytest.mark.parametrize(
    "bad",
    [
        Span(make_stream(SMALL, 9, seed=0), 2, 0, 9),  # slot
        Span(make_stream(SMALL, 9, seed=0), -1, 0, 9),
        Span(make_stream(SMALL, 9, seed=0), 1, 0, 9, floor=1),  # above the first row
    ],
    ids=["slot", "negative slot", "floor"],
)
def test_run_outside_its_tensors_is_refused(op: WindowOp, bad: Span):
    with pytest.raises(ValueError, match="run"):
        window_step(op, [bad], make_rings(SMALL, 2, RING, F32), WINDOW)


@OPS
def test_empty_calls(op: WindowOp):
    stream = make_stream(SMALL, 9, seed=0)
    rings = make_rings(SMALL, 2, RING, F32)
    empty = window_step(op, [Span(stream, 1, 0, 0)], rings, WINDOW)
    assert empty[0].shape == (0, 4, 16)
    assert (rings.tags == -1).all()
    runs = torch.empty(0, 7, dtype=torch.int64)
    k = torch.full((4, 2, 16), float("nan"))
    out = op(torch.cat([k, k], 1), k, k, rings.k, rings.v, rings.tags, runs, WINDOW, 0.25)
    assert torch.equal(out, torch.zeros(4, 4, 16))


@OPS
def test_largest_slot_and_far_position(op: WindowOp):
    near, far = make_rings(SMALL, 9, RING, F32), make_rings(SMALL, 9, RING, F32)
    stream = make_stream(SMALL, 200, seed=12)
    shift = 10 * 2048 * RING  # a multiple of ring, block and segment: the same arithmetic
    out = []
    for rings, at in ((near, 0), (far, shift)):
        runs = [[8, 0, 150, 0, 150, at, at], [8, 150, 50, 150, 50, at + 150, at]]
        out.append([
            op(
                stream.q, stream.k, stream.v, rings.k, rings.v, rings.tags,
                torch.tensor([run]), WINDOW, SMALL.scale,
            )
            for run in runs
        ])  # fmt: skip
    for a, b in zip(*out, strict=True):
        assert torch.equal(a, b)


def test_cpu_refuses_layouts_it_does_not_read():
    stream = make_stream(SMALL, 9, seed=0)
    rings = make_rings(SMALL, 2, RING, F32)
    runs = torch.tensor([[1, 0, 9, 0, 9, 0, 0]])
    tail = (rings.k, rings.v, rings.tags, runs, WINDOW, 0.25)
    with pytest.raises(TypeError, match="q must be float32"):
        cpu(stream.q.half(), stream.k, stream.v, *tail)
    with pytest.raises(TypeError, match="k must be float32"):
        cpu(stream.q, stream.k.transpose(1, 2).contiguous().transpose(1, 2), stream.v, *tail)
    with pytest.raises(TypeError, match="runs"):
        cpu(stream.q, stream.k, stream.v, *tail[:3], runs.int(), WINDOW, 0.25)
    with pytest.raises(TypeError, match="pool"):
        cpu(stream.q, stream.k, stream.v, rings.k.half(), rings.v.half(), *tail[2:])
