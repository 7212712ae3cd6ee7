"""Selection of entries: what is visible, ties, candidate blocks."""

from __future__ import annotations

import torch

from treadle.kernels.reference import indexer

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
