"""Selection of entries: what is visible, ties, candidate blocks."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import indexer as cpu
from treadle.kernels.reference import indexer
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import indexer as triton_module

triton = ops_of(triton_module)

INF = float("inf")


def test_scores_are_weighted_relus_and_invisible_entries_have_none():
    q = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    keys = torch.tensor([[2.0, 3.0], [-1.0, 5.0], [9.0, 9.0]])
    scores = indexer.index_scores(q, torch.tensor([[10.0, 1.0]]), keys, torch.tensor([2]))
    assert scores.tolist() == [[23.0, 5.0, -INF]]


def test_ties_go_to_the_lower_entry_and_lists_ascend():
    scores = torch.tensor([[0.0, 5.0, -0.0, 0.0, 5.0]])
    assert indexer.select_entries(scores, 3).tolist() == [[0, 1, 4]]
    assert indexer.select_entries(scores, 4).tolist() == [[0, 1, 2, 4]]


def test_unused_places_hold_minus_one():
    scores = torch.tensor([[-INF, 1.0, -INF], [-INF, -INF, -INF]])
    assert indexer.select_entries(scores, 5).tolist() == [[1, -1, -1, -1, -1], [-1] * 5]
    assert indexer.select_entries(torch.empty(2, 0), 2).tolist() == [[-1, -1], [-1, -1]]


def test_the_newest_block_is_always_a_candidate():
    scores = torch.tensor([[9.0, 0.0, 8.0, 0.0, 7.0, 0.0, -5.0, -INF]])
    kept = indexer.candidate_blocks(scores, torch.tensor([7]), block=2, count=2)
    assert kept.tolist() == [[True, True, False, False, False, False, True, True]]


def test_every_block_is_kept_when_there_is_room():
    scores = torch.zeros(1, 5)
    assert indexer.candidate_blocks(scores, torch.tensor([5]), 2, 3).all()
    nothing = torch.full((1, 5), -INF)
    assert not indexer.candidate_blocks(nothing, torch.tensor([0]), 2, 3).any()


def inputs(rows: int, entries: int, size: int = 32) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(rows + entries)
    q = torch.randn(rows, 4, size, generator=generator)
    weight = torch.randn(rows, 4, generator=generator)
    keys = torch.randn(entries, size, generator=generator)
    visible = torch.randint(0, entries + 1, (rows,), generator=generator)
    return q, weight, keys, visible


@pytest.mark.parametrize("entries", [0, 1, 16, 75])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_cpu_scores_and_chooses_as_the_reference(isa, rows, entries):
    args = inputs(rows, entries)
    want = indexer.index_scores(*args)
    assert_close(cpu.index_scores(*args), want, "latent")
    for count in (1, 8, 100):
        assert torch.equal(cpu.select_entries(want, count), indexer.select_entries(want, count))
    if entries:
        for block, count in ((4, 3), (8, 100)):
            got = cpu.candidate_blocks(want, args[3], block, count)
            assert torch.equal(got, indexer.candidate_blocks(want, args[3], block, count))


def test_cpu_chooses_among_equal_and_broken_scores_as_the_reference(isa):
    scores = torch.tensor([[0.0, 5.0, -0.0, 0.0, 5.0, -INF, torch.nan, INF, torch.nan]])
    for count in range(1, 10):
        assert torch.equal(cpu.select_entries(scores, count), indexer.select_entries(scores, count))


def test_a_row_is_the_same_bits_in_any_batch(isa):
    q, weight, keys, visible = inputs(300, 75)
    whole = cpu.index_scores(q, weight, keys, visible)
    for rows in (slice(0, 1), slice(7, 60), slice(299, 300)):
        part = cpu.index_scores(q[rows], weight[rows], keys, visible[rows])
        assert torch.equal(part, whole[rows])
    longer = torch.cat((keys, keys))
    assert torch.equal(cpu.index_scores(q, weight, longer, visible)[:, :75], whole)


def test_cpu_refuses_sizes_that_disagree():
    q, weight, keys, visible = inputs(3, 9)
    with pytest.raises(ValueError, match="keys"):
        cpu.index_scores(q, weight, keys[:, 1:], visible)


def test_cpu_runs_the_reference_on_other_dtypes():
    q, weight, keys, visible = inputs(3, 9)
    args = (q.double(), weight.double(), keys.double(), visible)
    assert torch.equal(cpu.index_scores(*args), indexer.index_scores(*args))


@pytest.mark.parametrize("entries", [0, 1, 16, 75])
@pytest.mark.parametrize("rows", [0, 2])
def test_triton_scores_and_chooses_as_the_reference(rows, entries):
    args = inputs(rows, entries)
    want = indexer.index_scores(*args)
    assert_close(triton.index_scores(*args), want, "latent")
    for count in (8, 100):
        assert torch.equal(triton.select_entries(want, count), indexer.select_entries(want, count))
    if entries:
        for block, count in ((4, 3), (3, 2)):
            got = triton.candidate_blocks(want, args[3], block, count)
            assert torch.equal(got, indexer.candidate_blocks(want, args[3], block, count))


def test_triton_chooses_among_equal_and_broken_scores_as_the_reference():
    scores = torch.tensor([[0.0, 5.0, -0.0, 0.0, 5.0, -INF, torch.nan, INF, torch.nan, -3.0]])
    for count in range(1, 11):
        want = indexer.select_entries(scores, count)
        assert torch.equal(triton.select_entries(scores, count), want)


def test_triton_chooses_from_more_entries_than_a_program_sees_at_once():
    """With many that are equal on both sides of a boundary."""
    scores = torch.randint(0, 50, (3, 5000), generator=torch.Generator().manual_seed(5)).float()
    scores[1, 4000:], scores[2] = -INF, -INF
    for count in (700, 4500):
        want = indexer.select_entries(scores, count)
        assert torch.equal(triton.select_entries(scores, count), want)


def test_triton_refuses_sizes_that_disagree():
    q, weight, keys, visible = inputs(3, 9)
    with pytest.raises(ValueError, match="keys"):
        triton.index_scores(q, weight, keys[:, 1:], visible)
