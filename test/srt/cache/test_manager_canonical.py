"""CacheManager for canonical requests: hits, publishing, generations (3.11, T16, T27, B34)."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.lease import Origin
from treadle.srt.cache.manager import CacheManager
from treadle.srt.cache.replay import ReplayShape

GRID, PAGE = 32, 4
FLAT = ReplayShape("bounded", 0, 1)
CANONICAL = ReplayShape("canonical", 0, 1, GRID)


@pytest.fixture
def manager(make_manager) -> CacheManager:
    return make_manager(num_pages=256, windows=2, grid=GRID)


def run(manager: CacheManager, tokens: array, upto: int, prompt_len: int | None = None) -> None:
    """A canonical request whose rows below `upto` are computed; its prompt is all of `tokens`."""
    ns = manager.rule.namespace(CANONICAL)
    got = manager.admit(ns, tokens, len(tokens) - 1, CANONICAL, 0, Origin(prompt_len))
    manager.grow(got.lease, len(tokens))
    manager.publish(got.lease, tokens, upto, None, is_final=True)
    manager.release(got.lease, None)
    manager.check()


def hit(manager: CacheManager, tokens: array, shape: ReplayShape = CANONICAL) -> int:
    ns = manager.rule.namespace(shape)
    return manager.probe(ns, tokens, len(tokens) - 1, shape).length


@pytest.mark.parametrize(("length", "upto"), [(100, 100), (96, 96), (127, 127), (140, 110)])
def test_only_whole_segments_of_the_prompt_are_published(manager, make_ids, length, upto):
    tokens = make_ids(1, length)
    run(manager, tokens, upto)
    assert sum(len(node.pages) for node in manager.tree.nodes()) * PAGE == 96
    assert hit(manager, make_ids(1, 200)) == 96


def test_generated_text_is_not_published(manager, make_ids):
    """3.11: on the next turn it is prefilled anew, by the operations of a prompt."""
    tokens = make_ids(1, 100)
    run(manager, tokens, 100, prompt_len=40)
    assert hit(manager, make_ids(1, 200)) == 32


def test_hits_end_at_grid_points_only(manager, make_ids):
    run(manager, make_ids(1, 100), 100)
    assert [hit(manager, make_ids(1, n)) for n in (32, 33, 64, 65, 96, 97)] == [
        0,
        32,
        32,
        64,
        64,
        96,
    ]
    forked = make_ids(1, 50, then=2, more=50)
    assert hit(manager, forked) == 32
    assert dict(
        manager.probe(manager.rule.namespace(CANONICAL), forked, 99, CANONICAL).dropped
    ) == {"exactness": 16}


def test_canonical_pages_and_others_never_meet(manager, make_ids):
    """T27."""
    run(manager, make_ids(1, 100), 100)
    for shape in (FLAT, ReplayShape("exact", 3, 1), ReplayShape("canonical", 1, 1, GRID)):
        assert hit(manager, make_ids(1, 200), shape) == 0


def test_nothing_is_published_or_rebound_while_running(manager, make_ids):
    """T16."""
    tokens = make_ids(1, 100)
    run(manager, tokens, 100)
    got = manager.admit((), tokens, 99, CANONICAL, 0)
    manager.grow(got.lease, 100)
    before = got.lease.pages[:]
    assert manager.publish(got.lease, tokens, 100, None) == []
    assert got.lease.pages == before


@pytest.mark.parametrize("mode", ["off", "exact"])
def test_off_and_exact_are_not_rebound_while_running_either(manager, make_ids, mode):
    """T16, 3.11: else their later numbers depended on who published first."""
    tokens = make_ids(1, 40)
    shape = manager.rule.shape(mode, None)
    other = manager.admit((), tokens, 39, FLAT, 0)
    manager.grow(other.lease, 40)
    got = manager.admit((), tokens, 39, shape, 0)
    manager.grow(got.lease, 40)
    manager.publish(other.lease, tokens, 40, None)
    before = got.lease.pages[:]
    assert manager.publish(got.lease, tokens, 40, None) == []
    assert got.lease.pages == before and got.lease.protected_len == 0


def test_nodes_carry_the_number_of_restarts_behind_them(manager, make_ids):
    """B31, B34: whoever publishes a segment, and in how many parts."""
    for length in (40, 100, 140):
        run(manager, make_ids(1, length), length)
    segments: dict[int, int] = {}
    for node in manager.tree.nodes():
        segments[node.approx] = segments.get(node.approx, 0) + len(node.pages) * PAGE
    assert segments == {0: 32, 1: 32, 2: 32, 3: 32}
    assert manager.gauges()["tree_nonexact_ratio"] == 0.75


def test_generation_of_a_request_is_a_function_of_its_prompt(manager, make_ids):
    """B34: the same for a hit and a cold run."""
    ns = manager.rule.namespace(CANONICAL)
    tokens = make_ids(1, 100)
    for _ in range(2):
        got = manager.admit(ns, tokens, 99, CANONICAL, 0)
        assert got.lease.approx == 3
        manager.grow(got.lease, 100)
        manager.publish(got.lease, tokens, 100, None, is_final=True)
        manager.release(got.lease, None)
    assert got.hit.length == 96
