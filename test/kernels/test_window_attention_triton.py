"""Window attention in Triton against the formula and the reference."""

from __future__ import annotations

import pytest
import torch

from test.kernels.test_window_attention import (
    ATOL,
    BF16,
    F32,
    RING,
    RTOL,
    SMALL,
    WINDOW,
    assert_same_rings,
    in_chunks,
)
from test.kernels.triton_ops import on_device
from test.naive_attention import naive_attention
from treadle.kernels.attention_inputs import Shape, Span, make_rings, make_stream, window_step
from treadle.kernels.reference.window_attention import window_attention as reference
from treadle.kernels.triton.window_attention import window_attention

triton = on_device(window_attention)


@pytest.mark.parametrize("shape", [Shape(4, 1, 256), Shape(9, 3, 64), Shape(2, 2, 80)], ids=str)
@pytest.mark.parametrize("kinds", [(F32, F32), (F32, BF16), (BF16, BF16)], ids=str)
@pytest.mark.parametrize("window", [1, 70])
def test_is_the_formula(shape: Shape, kinds: tuple[torch.dtype, torch.dtype], window: int):
    """Rows and pool of `kinds`; runs of many rows, of one with its keys split, and of the rest."""
    stream = make_stream(shape, 150, seed=3, dtype=kinds[0])
    rings = [make_rings(shape, 2, window + 16, kinds[1]) for _ in range(2)]
    got = in_chunks(triton, stream, [100, 101], rings[0], window)
    exact = naive_attention(stream, window, 0, kinds[1]).float()
    bound = ATOL if kinds[0] is F32 else 2e-2
    torch.testing.assert_close(got.float(), exact, atol=bound, rtol=bound)
    in_chunks(reference, stream, [100, 101], rings[1], window)
    assert_same_rings(*rings)


def spans(first: bool) -> list[Span]:
    s = [make_stream(SMALL, 200, seed=i) for i in range(5)]
    if first:
        return [
            Span(s[0], 1, 0, 149),
            Span(s[1], 2, 0, 5),
            Span(s[2], 4, 100, 190, floor=100),
            Span(s[4], 5, 7, 8, floor=7, q_rows=0),
        ]
    return [
        Span(s[0], 1, 149, 150),
        Span(s[2], 4, 190, 200, floor=100, q_rows=1),
        Span(s[3], 3, 0, 110),
        Span(s[1], 2, 5, 100, q_rows=0),
        Span(s[4], 5, 8, 9, floor=7),
    ]


@pytest.mark.parametrize("padding", [3])
def test_mixed_step_is_the_reference(padding: int):
    got_rings, want_rings = (make_rings(SMALL, 6, RING, F32) for _ in range(2))
    for first in (True, False):
        got = window_step(triton, spans(first), got_rings, WINDOW, padding)
        want = window_step(reference, spans(first), want_rings, WINDOW, padding)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, atol=ATOL, rtol=RTOL)
        assert_same_rings(got_rings, want_rings)


def test_decode_step_is_the_reference():
    """As many runs as rows; one is at its floor, one leaves no row."""
    ends = [180, 1, 64, 65, 17]
    streams = [make_stream(SMALL, n, seed=i) for i, n in enumerate(ends)]
    got_rings, want_rings = (make_rings(SMALL, 6, RING, BF16) for _ in range(2))
    for slot, stream in enumerate(streams, 1):
        for rings in (got_rings, want_rings):
            window_step(reference, [Span(stream, slot, 0, len(stream.q) - 1)], rings, WINDOW)
    q_rows = [1, 1, 0, 1, 1]
    last = [
        Span(x, i, len(x.q) - 1, len(x.q), q_rows=n, floor=16 if i == 5 else 0)
        for i, (x, n) in enumerate(zip(streams, q_rows, strict=True), 1)
    ]
    got = window_step(triton, last, got_rings, WINDOW)
    for one, want in zip(got, window_step(reference, last, want_rings, WINDOW), strict=True):
        torch.testing.assert_close(one, want, atol=ATOL, rtol=RTOL)
    assert_same_rings(got_rings, want_rings)


@pytest.mark.parametrize("floor", [1, 64, 100])
def test_floor_hides_lower_positions(floor: int):
    stream = make_stream(SMALL, 170, seed=6)
    rings = make_rings(SMALL, 2, RING, F32)
    parts = [
        window_step(triton, [Span(stream, 1, a, b, floor=floor)], rings, WINDOW)[0]
        for a, b in ((floor, 120), (120, 121), (121, 170))
    ]
    want = naive_attention(stream, WINDOW, floor)[floor:].float()
    torch.testing.assert_close(torch.cat(parts), want, atol=ATOL, rtol=RTOL)


def test_chunk_longer_than_the_ring_keeps_its_last_rows():
    stream = make_stream(SMALL, 2 * RING + 5, seed=9)
    rings, want = (make_rings(SMALL, 2, RING, F32) for _ in range(2))
    in_chunks(triton, stream, [RING // 2], rings)
    in_chunks(reference, stream, [RING // 2], want)
    assert_same_rings(rings, want)


@pytest.mark.parametrize("rows", [1, 20])
def test_missing_history_poisons_the_rows_that_see_it(rows: int):
    """S5: nothing on the device can raise; the sampler reports rows that are not finite."""
    stream = make_stream(SMALL, 200, seed=11)
    rings = make_rings(SMALL, 2, RING, F32)
    window_step(reference, [Span(stream, 1, 0, 110)], rings, WINDOW)
    lost = 45  # seen by rows 110 .. 114
    rings.tags[1, lost % RING] = lost - RING
    out = window_step(triton, [Span(stream, 1, 110, 110 + rows)], rings, WINDOW)[0]
    assert out[:5].isnan().all()
    assert not out[5:].isnan().any()


@pytest.mark.parametrize("start", [2 * RING - 3])
def test_stale_rows_of_a_slot_never_reach_an_output(start: int):
    stream = make_stream(SMALL, 230, seed=10)
    rings = make_rings(SMALL, 2, RING, BF16)
    for a, b in ((start, start + 9), (start + 9, start + 10), (start + 10, start + 60)):
        span = Span(stream, 1, a, b, floor=start)
        assert not window_step(triton, [span], rings, WINDOW)[0].isnan().any()


def test_rows_of_no_run_are_zero():
    rings = make_rings(SMALL, 2, RING, F32)
    runs = torch.empty(0, 7, dtype=torch.int64)
    k = torch.full((4, 2, 16), float("nan"))
    out = triton(torch.cat([k, k], 1), k, k, rings.k, rings.v, rings.tags, runs, WINDOW, 0.25)
    assert torch.equal(out, torch.zeros(4, 4, 16))


def test_ring_shorter_than_the_window_is_refused():
    stream = make_stream(SMALL, 9, seed=0)
    with pytest.raises(ValueError, match="holds no window"):
        window_step(triton, [Span(stream, 1, 0, 9)], make_rings(SMALL, 2, 8, F32), 9)
