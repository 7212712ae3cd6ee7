"""Boxes of the picture: the largest nodes with their parents, and rests that lose no token."""

from __future__ import annotations

from array import array
from random import Random

from treadle.srt.api.tree_view import TreeView, view_of
from treadle.srt.snapshot import TreeOutline

SIZE = 16


def make(parents: list[int], pages: list[int], approx: list[int] | None = None) -> TreeOutline:
    count = len(parents)
    approx = approx or [0] * count
    columns = [parents, pages, approx, [0] * count, [1] * count, [1] * count, [0] * count]
    nodes = sum(parent >= 0 for parent in parents)
    return TreeOutline(SIZE, nodes, sum(pages), *(array("i", column) for column in columns))


def total(view: TreeView) -> int:
    """Tokens of all boxes without parent, with what is below them."""
    return sum(box.total_tokens for box in view.boxes if box.parent < 0)


def test_small_trees_have_a_box_per_node():
    view = view_of(make([-1, 0, 1, 1], [0, 4, 2, 1], [0, 0, 1, 0]))
    assert [(b.parent, b.tokens, b.total_tokens, b.approx) for b in view.boxes] == [
        (-1, 64, 112, 0), (0, 32, 32, 1), (0, 16, 16, 0),
    ]  # fmt: skip
    assert (view.num_tokens, view.seen_tokens, view.num_nodes, view.seen_nodes) == (112, 112, 3, 3)


def test_small_siblings_become_one_rest_with_all_their_tokens():
    view = view_of(make([-1, 0, 1, 1, 1, 2], [0, 4, 9, 1, 2, 5], [0, 0, 3, 2, 1, 3]), limit=2)
    rest = view.boxes[2:]
    assert [box.is_rest for box in rest] == [True, True]
    assert [(b.parent, b.nodes, b.tokens, b.total_tokens, b.approx) for b in rest] == [
        (0, 2, 32, 48, 1), (1, 1, 80, 80, 3),
    ]  # fmt: skip
    assert total(view) == view.seen_tokens


def test_scopes_have_numbers_and_no_box():
    view = view_of(make([-1, -1, 0, 1], [0, 0, 3, 5]))
    assert [(box.parent, box.scope, box.tokens) for box in view.boxes] == [(-1, 1, 80), (-1, 0, 48)]


def test_random_trees_keep_their_tokens_their_order_and_the_bound():
    rng = Random(3)
    for limit in (1, 5, 40):
        parents, pages = [-1, -1], [0, 0]
        for index in range(2, 150):
            parents.append(rng.randrange(max(0, index - 40), index))
            pages.append(rng.randrange(1, 50))
        view = view_of(make(parents, pages), limit)
        assert total(view) == view.seen_tokens == view.num_tokens
        assert sum(not box.is_rest for box in view.boxes) == limit
        assert len(view.boxes) <= 2 * limit + 2
        for index, box in enumerate(view.boxes):
            assert box.parent < index
            below = [b for b in view.boxes if b.parent == index]
            if not box.is_rest:
                assert box.total_tokens == box.tokens + sum(b.total_tokens for b in below)
        smallest = min(box.total_tokens for box in view.boxes if not box.is_rest)
        singles = [b for b in view.boxes if b.is_rest and b.nodes == 1]
        assert all(box.total_tokens <= smallest for box in singles)


def test_an_empty_tree_has_no_box():
    assert view_of(make([], [])).boxes == ()
