"""Attention of rows as the projection makes them: each backend against the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import ops_of
from treadle.kernels.attention_inputs import Shape, Stream, make_pages, make_rings, make_stream
from treadle.kernels.cpu import rotated_attention as cpu
from treadle.kernels.reference import rotated_attention as reference
from treadle.kernels.reference.rope import QkNorm, rope_inv_freq, rope_table
from treadle.kernels.reference.rotated_attention import PagedKeys, Rotation, WindowKeys
from treadle.kernels.triton import rotated_attention as triton_module

triton = ops_of(triton_module)
F32, BF16 = torch.float32, torch.bfloat16
CASES = pytest.mark.parametrize(
    ("shape", "kinds", "has_norm"),
    [
        (Shape(4, 2, 256), (BF16, BF16), True),
        (Shape(3, 1, 64), (F32, F32), True),
        (Shape(2, 2, 80), (F32, BF16), False),
    ],
    ids=str,
)
BOUNDS = {F32: 3e-5, BF16: 4e-2}
PAGE, WINDOW, RING = 16, 70, 86


def rotation_of(shape: Shape, positions: list[int], *, has_norm: bool) -> Rotation:
    weights = torch.rand(2, shape.head_dim, generator=torch.Generator().manual_seed(4)) + 0.5
    norm = QkNorm(weights[0], weights[1], 1e-6) if has_norm else None
    table = rope_table(rope_inv_freq(shape.head_dim, 1e4), 200)
    return Rotation(torch.tensor(positions), table, norm)


def rows_of(streams: list[Stream], spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows start .. end - 1 of each stream, as slices of one fused tensor. Fresh each time."""
    shape = streams[0].shape
    parts = [torch.cat((s.q, s.k, s.v), 1)[a:b] for s, (a, b) in zip(streams, spans, strict=True)]
    q, k, v = torch.split(torch.cat(parts), [shape.heads, shape.kv_heads, shape.kv_heads], 1)
    return q, k, v


class Window:
    """Streams in slots of rings; `step` runs the next rows of each."""

    def __init__(self, shape: Shape, kind: torch.dtype, slots: int) -> None:
        rings = make_rings(shape, slots + 1, RING, kind)
        empty = torch.empty(0, 7, dtype=torch.int64)
        self.keys = WindowKeys(rings.k, rings.v, rings.tags, empty, WINDOW)

    def step(self, op, streams, spans, rotation, floors=None) -> Tensor:
        q, k, v = rows_of(streams, spans)
        runs, row = [], 0
        for slot, (a, b) in enumerate(spans, 1):
            runs.append([slot, row, b - a, row, b - a, a, floors[slot - 1] if floors else 0])
            row += b - a
        keys = replace(self.keys, runs=torch.tensor(runs))
        return op.rotated_window_attention(q, k, v, rotation, keys, streams[0].shape.scale)

    def held(self) -> list[Tensor]:
        return [self.keys.k, self.keys.v, self.keys.tags]


class Paged:
    """The same with pages; rows of slots in `replayed` are there already and written by nobody."""

    def __init__(self, shape: Shape, kind: torch.dtype, ends: list[int]) -> None:
        pages = make_pages(shape, ends, PAGE, kind)
        empty = torch.empty(0, dtype=torch.int64)
        self.keys = PagedKeys(pages.k, pages.v, empty, pages.table, empty.reshape(0, 4))

    def step(self, op, streams, spans, rotation, replayed=()) -> Tensor:
        q, k, v = rows_of(streams, spans)
        runs, dst, row = [], [], 0
        for slot, (a, b) in enumerate(spans, 1):
            runs.append([slot, row, b - a, a])
            row += b - a
            x = torch.arange(a, b)
            place = self.keys.table[slot, x // PAGE].long() * PAGE + x % PAGE
            dst.append(torch.full_like(place, -1) if slot in replayed else place)
        keys = replace(self.keys, dst=torch.cat(dst), runs=torch.tensor(runs))
        return op.rotated_paged_attention(q, k, v, rotation, keys, streams[0].shape.scale)

    def held(self) -> list[Tensor]:
        return [self.keys.k, self.keys.v]


def assert_same(got: Tensor, want: Tensor, pools: tuple[Window | Paged, Window | Paged]) -> None:
    bound = BOUNDS[want.dtype]
    torch.testing.assert_close(got, want, atol=bound, rtol=bound)
    for one, other in zip(pools[0].held(), pools[1].held(), strict=True):
        bound = BOUNDS.get(other.dtype, 0.0)
        torch.testing.assert_close(one, other, atol=bound, rtol=bound, equal_nan=True)


def positions(spans: list[tuple[int, int]]) -> list[int]:
    return [x for a, b in spans for x in range(a, b)]


@pytest.fixture(autouse=True)
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the device: so many that a few rows take one kernel."""
    count = getattr(request, "param", 64)
    monkeypatch.setattr(triton_module, "num_processors", lambda: count)


@CASES
def test_a_single_row_over_pages_is_the_reference(shape, kinds, has_norm):
    stream = make_stream(shape, 80, seed=3, dtype=kinds[0])
    pools = Paged(shape, kinds[1], [80]), Paged(shape, kinds[1], [80])
    for a, b in ((0, 1), (1, 70), (70, 71), (71, 72)):
        rotation = rotation_of(shape, positions([(a, b)]), has_norm=has_norm)
        want = pools[1].step(reference, [stream], [(a, b)], rotation)
        op = triton if b - a == 1 else reference
        assert_same(pools[0].step(op, [stream], [(a, b)], rotation), want, pools)


@CASES
def test_a_single_row_over_a_ring_is_the_reference(shape, kinds, has_norm):
    stream = make_stream(shape, 120, seed=3, dtype=kinds[0])
    pools = Window(shape, kinds[1], 1), Window(shape, kinds[1], 1)
    for a, b in ((0, 1), (1, 110), (110, 111), (111, 112)):
        rotation = rotation_of(shape, positions([(a, b)]), has_norm=has_norm)
        want = pools[1].step(reference, [stream], [(a, b)], rotation)
        op = triton if b - a == 1 else reference
        assert_same(pools[0].step(op, [stream], [(a, b)], rotation), want, pools)


SMALL = Shape(4, 2, 16)
ENDS = [90, 1, 33]


@pytest.mark.parametrize("processors", [64, 4], ids=["one kernel", "several"], indirect=True)
@pytest.mark.parametrize("op", [cpu, triton], ids=["cpu", "triton"])
def test_rows_of_several_requests_are_the_reference(op):
    """In one kernel, and in one after the other like the longer runs before them."""
    streams = [make_stream(SMALL, n, seed=i) for i, n in enumerate(ENDS)]
    for make in (lambda: Paged(SMALL, F32, ENDS), lambda: Window(SMALL, F32, len(ENDS))):
        pools = make(), make()
        for spans in ([(0, n - 1) for n in ENDS], [(n - 1, n) for n in ENDS]):
            rotation = rotation_of(SMALL, positions(spans), has_norm=True)
            want = pools[1].step(reference, streams, spans, rotation)
            assert_same(pools[0].step(op, streams, spans, rotation), want, pools)


def test_a_replayed_row_reads_the_cached_page_and_writes_nothing():
    """B6, in one kernel."""
    stream, other = make_stream(SMALL, 40, seed=1), make_stream(SMALL, 40, seed=2)
    pools = Paged(SMALL, F32, [40]), Paged(SMALL, F32, [40])
    for pool in pools:
        pool.step(
            reference, [stream], [(0, 40)], rotation_of(SMALL, list(range(40)), has_norm=True)
        )
    before = pools[0].keys.k.clone()
    rotation = rotation_of(SMALL, [30], has_norm=True)
    want = pools[1].step(reference, [other], [(30, 31)], rotation, replayed=(1,))
    assert_same(pools[0].step(triton, [other], [(30, 31)], rotation, replayed=(1,)), want, pools)
    torch.testing.assert_close(pools[0].keys.k, before, atol=0, rtol=0, equal_nan=True)


def test_missing_history_poisons_a_single_row():
    """S5: nothing on the device can raise; the sampler reports rows that are not finite."""
    stream, pool = make_stream(SMALL, 120, seed=5), Window(SMALL, F32, 1)
    pool.step(reference, [stream], [(0, 110)], rotation_of(SMALL, list(range(110)), has_norm=True))
    rotation = rotation_of(SMALL, [110], has_norm=True)
    assert not pool.step(triton, [stream], [(110, 111)], rotation).isnan().any()
    lost = 60
    pool.keys.tags[1, lost % RING] = lost - RING
    rotation = rotation_of(SMALL, [111], has_norm=True)
    assert pool.step(triton, [stream], [(111, 112)], rotation).isnan().all()
    assert not pool.step(triton, [stream], [(112, 113)], rotation, [100]).isnan().any()


@pytest.mark.parametrize("lost", [42, 59, 75, 105])
def test_missing_history_is_seen_in_any_block(lost, monkeypatch):
    """S5: blocks of 16 keys, so that a program walks over several."""
    monkeypatch.setattr(triton_module, "BLOCK", 512)
    stream, pool = make_stream(SMALL, 120, seed=5), Window(SMALL, F32, 1)
    pool.step(reference, [stream], [(0, 111)], rotation_of(SMALL, list(range(111)), has_norm=True))
    pool.keys.tags[1, lost % RING] = lost - RING
    rotation = rotation_of(SMALL, [111], has_norm=True)
    assert pool.step(triton, [stream], [(111, 112)], rotation).isnan().all()


def test_a_position_outside_the_table_is_not_a_number():
    stream, pool = make_stream(SMALL, 3, seed=5), Window(SMALL, F32, 1)
    table = rotation_of(SMALL, [0], has_norm=False)
    short = replace(table, cos_sin=table.cos_sin[:1])
    assert not pool.step(triton, [stream], [(0, 1)], short).isnan().any()
    short = replace(short, positions=torch.tensor([1]))
    assert pool.step(triton, [stream], [(1, 2)], short).isnan().any()


def test_layouts_that_are_not_read_are_refused():
    stream, pool = make_stream(SMALL, 3, seed=5), Window(SMALL, F32, 1)
    rotation = rotation_of(SMALL, [0], has_norm=False)
    wide = replace(rotation, cos_sin=torch.zeros(9, 32))
    with pytest.raises(ValueError, match="heads of 16 and a table of 32"):
        pool.step(triton, [stream], [(0, 1)], wide)
    pool.keys = replace(pool.keys, window=RING + 1)
    with pytest.raises(ValueError, match="holds no window"):
        pool.step(triton, [stream], [(0, 1)], rotation)
