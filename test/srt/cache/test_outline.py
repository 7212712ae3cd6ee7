"""An outline shows the upper part of the tree, within its bound, and counts what it leaves out."""

from __future__ import annotations

from array import array

from test.srt.cache.test_radix import Bench
from treadle.srt.cache import outline as outline_module
from treadle.srt.cache.outline import outline
from treadle.srt.snapshot import TreeOutline


def forked(make_ids) -> Bench:
    """A prompt of 4 pages, prompts of 2 pages on its first 2, one of them twice, and an output."""
    bench = Bench()
    trunk = make_ids(1, 16)
    bench.keep(trunk)
    for name in (2, 3):
        bench.keep(trunk[:8] + make_ids(name, 8), approx=name - 1)
    bench.keep(trunk[:8] + make_ids(3, 8) + make_ids(4, 4), prompt=4, approx=2)
    return bench


def rows(seen: TreeOutline) -> list[tuple[int, int, int, int]]:
    return list(zip(seen.parents, seen.pages, seen.approx, seen.is_prompt, strict=True))


def test_outline_has_every_node_of_a_small_tree_parents_first(make_ids):
    tree = forked(make_ids).tree
    seen = outline(tree, 100)
    assert rows(seen) == [(-1, 0, 0, 0), (0, 2, 0, 1), (1, 2, 2, 1), (1, 2, 1, 1), (1, 2, 0, 1),
                          (2, 1, 2, 0)]  # fmt: skip
    assert seen.num_nodes == tree.num_nodes == len(seen.pages) - 1
    assert seen.num_pages == sum(seen.pages) == 9
    assert sum(seen.unseen) == 0
    assert not any(seen.pins)


def test_outline_reads_no_more_than_its_limit_and_says_what_it_left_out(make_ids):
    tree = forked(make_ids).tree
    seen = outline(tree, 4)
    assert list(seen.parents) == [-1, 0, 1, 1]  # the two newest of the three children
    assert list(seen.unseen) == [0, 1, 1, 0]  # the third, and the output below the newest
    assert (seen.num_nodes, seen.num_pages) == (5, 9)
    assert len(outline(tree, 1).pages) == 1


def test_of_many_siblings_the_newest_are_followed_to_their_ends(make_ids, monkeypatch):
    monkeypatch.setattr(outline_module, "CHILDREN", 2)
    bench = Bench()
    for name in range(5):
        bench.keep(make_ids(name, 8), prompt=1)
    seen = outline(bench.tree, 5)
    assert list(seen.parents) == [-1, 0, 0, 1, 2]
    assert list(seen.unseen) == [3, 0, 0, 0, 0]


def test_scopes_are_roots_and_pins_are_shown(make_ids):
    bench = Bench()
    bench.keep(make_ids(1, 8), ns=(("owner", "a"),))
    bench.keep(make_ids(1, 8), ns=(("owner", "b"),))
    held = bench.tree.pin((("owner", "b"),), make_ids(1, 8), 8, is_resume=False)
    seen = outline(bench.tree, 100)
    assert list(seen.parents) == [-1, -1, 0, 1]
    assert list(seen.pins) == [1, 0, 1, 0]
    assert list(seen.hits)[2:] == [2, 1]
    bench.tree.unpin(held.pin)


def test_outline_changes_nothing(make_ids):
    bench = forked(make_ids)
    before = [(node.id, node.hits, node.tick, node.pins) for node in bench.tree.nodes()]
    outline(bench.tree, 3)
    assert [(n.id, n.hits, n.tick, n.pins) for n in bench.tree.nodes()] == before
    bench.tree.check()


def test_an_empty_tree_has_an_empty_outline():
    seen = outline(Bench().tree, 10)
    assert (seen.num_nodes, seen.parents) == (0, array("i"))
