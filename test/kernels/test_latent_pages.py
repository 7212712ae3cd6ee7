"""Rows of several requests against packed pages and rings: each backend against the reference, and
the reference against single requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import latent_pages as cpu
from treadle.kernels.reference import latent_pages as reference
from treadle.kernels.reference.block_float import RowKind, decode_rows, encode_rows
from treadle.kernels.reference.latent_attention import latent_attention
from treadle.kernels.reference.latent_pages import Choice, Pages, Rings
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import latent_pages as triton_module

triton = ops_of(triton_module)
BACKENDS = pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
KINDS = pytest.mark.parametrize(
    "kinds",
    [
        (RowKind.FP8, RowKind.NVFP4, RowKind.MXFP4),
        (RowKind.FP8, RowKind.FP8, RowKind.FP8_ROW),
        (RowKind.FLOAT32, RowKind.FLOAT32, RowKind.FLOAT32),
    ],
    ids=["fp4", "fp8", "float32"],
)
SLOTS, RING, WINDOW, HEADS, SIZE, PER_PAGE = 4, 24, 20, 3, 64, 4
# (slot, first position in the step, rows that enter, rows that leave, floor)
SPANS = [(2, 0, 3, 3, 0), (1, 37, 1, 1, 5), (3, 50, 27, 4, 0), (0, 61, 2, 0, 50)]
ROWS, ALONE = 8, 3  # that leave; the place of the second request's row


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, slots=True)
class Step:
    """Rows of the four requests of `SPANS`, with what they held before."""

    q: Tensor
    new: Tensor
    rings: Rings
    pages: Pages | None
    chosen: Tensor
    sink: Tensor


def step(kinds: tuple[RowKind, ...], ratio: int = 2) -> Step:
    window_kind, entry_kind = kinds[:2]
    window_runs, paged_runs, k_first, q_first = [], [], 0, 0
    tags = torch.full((SLOTS, RING), -1)
    for slot, position, k_rows, q_rows, floor in SPANS:
        window_runs.append([slot, k_first, k_rows, q_first, q_rows, position, floor])
        if q_rows:
            paged_runs.append([slot, q_first, q_rows, position + k_rows - q_rows])
        held = torch.arange(max(floor, position - RING), position)
        tags[slot, held % RING] = held
        k_first, q_first = k_first + k_rows, q_first + q_rows
    rows = encode_rows(rand(SLOTS, RING, SIZE, seed=1), window_kind)
    rings = Rings(rows, tags, window_kind, SIZE, torch.tensor(window_runs), WINDOW)
    pages = pages_of(entry_kind, SIZE, ratio, torch.tensor(paged_runs))
    generator = torch.Generator().manual_seed(4)
    chosen = torch.full((q_first, 9), -1)
    for _, first, count, position in paged_runs:
        for row in range(count):
            visible = (position + row + 1) // ratio
            some = torch.randperm(visible, generator=generator)[:9].sort().values
            chosen[first + row, : len(some)] = some
    new = encode_rows(rand(k_first, SIZE, seed=2), window_kind)
    return Step(rand(q_first, HEADS, SIZE, seed=3), new, rings, pages, chosen, rand(HEADS, seed=5))


def pages_of(kind: RowKind, size: int, ratio: int, runs: Tensor) -> Pages:
    num_pages = 12
    table = torch.zeros(SLOTS, 24, dtype=torch.int32)
    generator = torch.Generator().manual_seed(6)
    for slot in range(SLOTS):
        table[slot] = torch.randint(1, num_pages, (24,), generator=generator)
    rows = encode_rows(rand(num_pages, PER_PAGE, size, seed=7), kind)
    ends = runs[:, 2] + runs[:, 3]
    return Pages(rows, kind, size, ratio, table, runs, int(ends.max()) // ratio)


def visible_of(pages: Pages) -> Tensor:
    """How many entries each query row sees."""
    spans = [torch.arange(n) + p + 1 for _, _, n, p in pages.runs.tolist()]
    return torch.cat(spans) // pages.ratio


def attend(module, s: Step) -> Tensor:
    return module.attend_pages(s.q, s.new, s.rings, s.pages, s.chosen, s.sink)


def test_a_row_attends_what_is_in_its_window_and_in_its_list():
    """Row by row, from positions alone."""
    s = step((RowKind.FP8, RowKind.NVFP4))
    out = attend(reference, s)
    entries = decode_rows(s.pages.rows, RowKind.NVFP4, SIZE)
    for (slot, position, k_rows, q_rows, floor), run in zip(SPANS, s.rings.runs, strict=True):
        for row in range(q_rows):
            own, index = position + k_rows - q_rows + row, int(run[3]) + row
            near = [
                s.new[int(run[1]) + p - position] if p >= position else s.rings.rows[slot, p % RING]
                for p in range(max(floor, own - WINDOW + 1), own + 1)
            ]
            places = [e for e in s.chosen[index].tolist() if e >= 0]
            far = [entries[s.pages.table[slot, e // PER_PAGE], e % PER_PAGE] for e in places]
            keys = decode_rows(torch.stack(near), RowKind.FP8, SIZE)
            want = latent_attention(
                s.q[index : index + 1],
                keys,
                torch.ones(1, len(keys), dtype=torch.bool),
                torch.stack(far) if far else keys[:0],
                torch.arange(len(far))[None],
                s.sink,
            )
            assert_close(out[index : index + 1], want, "latent")


@KINDS
@BACKENDS
def test_rows_of_several_requests_agree_with_the_reference(module, kinds):
    for ratio in (1, 2):
        s = step(kinds, ratio)
        assert_close(attend(module, s), attend(reference, s), "latent")
    s = replace(s, chosen=s.chosen[:, :0], pages=None)
    assert_close(attend(module, s), attend(reference, s), "latent")


@BACKENDS
def test_a_row_is_the_same_bits_whatever_requests_are_beside_it(module):
    s = step((RowKind.FP8, RowKind.NVFP4))
    whole = attend(module, s)
    assert s.pages is not None
    one = slice(ALONE, ALONE + 1)
    rings = replace(s.rings, runs=s.rings.runs[1:2] * torch.tensor([1, 0, 1, 0, 1, 1, 1]))
    pages = replace(s.pages, runs=s.pages.runs[1:2] * torch.tensor([1, 0, 1, 1]))
    alone = Step(s.q[one], s.new[one], rings, pages, s.chosen[one], s.sink)
    assert torch.equal(attend(module, alone), whole[one])


@pytest.mark.parametrize("module", [reference, cpu], ids=["reference", "cpu"])
def test_a_position_that_a_ring_lacks_is_an_error(module):
    s = step((RowKind.FP8, RowKind.NVFP4))
    s.rings.tags[1, 30 % RING] = 30 - RING
    with pytest.raises(RuntimeError, match="slot 1 has no window row of position 30"):
        attend(module, s)


def test_triton_shows_that_a_ring_lacks_a_position():
    s = step((RowKind.FP8, RowKind.NVFP4))
    s.rings.tags[1, 30 % RING] = 30 - RING
    broken = attend(triton, s).isnan().flatten(1).all(1)
    assert broken.nonzero().flatten().tolist() == [ALONE]


@pytest.mark.parametrize("module", [reference, triton], ids=["reference", "triton"])
def test_the_last_rows_of_each_run_are_kept_in_its_ring(module):
    s = step((RowKind.FP8, RowKind.NVFP4))
    before = s.rings.rows.clone()
    module.keep_rows(s.new, s.rings)
    for (slot, position, k_rows, _, _), run in zip(SPANS, s.rings.runs, strict=True):
        kept = range(max(position, position + k_rows - RING), position + k_rows)
        for p in kept:
            assert s.rings.tags[slot, p % RING] == p
            assert torch.equal(s.rings.rows[slot, p % RING], s.new[int(run[1]) + p - position])
        others = [c for c in range(RING) if c not in {p % RING for p in kept}]
        assert torch.equal(s.rings.rows[slot, others], before[slot, others])


@KINDS
@BACKENDS
def test_entries_are_chosen_as_the_reference_does(module, kinds):
    runs = step(kinds).pages.runs
    pages = pages_of(kinds[2], 32, 2, runs)
    rows = int(runs[:, 2].sum())
    q, weight = rand(rows, 4, 32, seed=8), rand(rows, 4, seed=9)
    got = module.choose_entries(q, weight, pages, Choice(5, 3, 4), None)
    want = reference.choose_entries(q, weight, pages, Choice(5, 3, 4), None)
    assert torch.equal(got[0], want[0])
    assert got[1] is not None and want[1] is not None
    seen = torch.arange(pages.longest) < visible_of(pages)[:, None]
    assert torch.equal(got[1] & seen, want[1] & seen)
    filtered, marked = module.choose_entries(q, weight, pages, Choice(7, 0, 4), want[1])
    again = reference.choose_entries(q, weight, pages, Choice(7, 0, 4), want[1])[0]
    assert torch.equal(filtered, again) and marked is None
    assert not torch.equal(filtered[:, :5], want[0])


def test_triton_scores_in_parts_when_there_are_many(monkeypatch):
    kinds = (RowKind.FP8, RowKind.NVFP4)
    pages = pages_of(RowKind.MXFP4, 32, 2, step(kinds).pages.runs)
    q, weight = rand(ROWS, 4, 32, seed=8), rand(ROWS, 4, seed=9)
    whole = triton.choose_entries(q, weight, pages, Choice(5, 3, 4), None)
    monkeypatch.setattr(triton_module, "SCORED_BYTES", 4 * pages.longest * 3)
    for got, want in zip(
        triton.choose_entries(q, weight, pages, Choice(5, 3, 4), None), whole, strict=True
    ):
        assert torch.equal(got, want)


@BACKENDS
def test_rows_are_pooled_with_the_position_before_them(module):
    runs = step((RowKind.FP8, RowKind.NVFP4)).rings.runs
    values, gates, tail = rand(33, 24, seed=1), rand(33, 24, seed=2), rand(SLOTS, 8, 2, 24, seed=3)
    kept = tail.clone()
    want = reference.pool_rows(values, gates, kept, runs)
    got_tail = tail.clone()
    got = module.pool_rows(values, gates, got_tail, runs)
    assert torch.equal(got_tail, kept)
    odd = torch.cat([(torch.arange(n) + p) % 2 == 1 for _, p, n, _, _ in SPANS])
    assert_close(got[odd], want[odd], "gate")
    held, row = tail[1, 36 % 8], ALONE  # at position 37
    alone = reference.PARTS.pool_pairs(held[:1], held[1:], values[row:][:1], gates[row:][:1])
    torch.testing.assert_close(want[row], alone[0])


@pytest.mark.parametrize("module", [reference, triton], ids=["reference", "triton"])
def test_rows_are_stored_where_they_have_a_place(module):
    pool = torch.zeros(9, 40, dtype=torch.uint8)
    rows = torch.randint(0, 256, (5, 40), generator=torch.Generator().manual_seed(1)).byte()
    module.store_rows(pool, torch.tensor([3, -1, 8, 0, -1]), rows)
    want = torch.zeros_like(pool)
    want[[3, 8, 0]] = rows[[0, 2, 3]]
    assert torch.equal(pool, want)
    module.store_rows(pool, torch.tensor([], dtype=torch.int64), rows[:0])
