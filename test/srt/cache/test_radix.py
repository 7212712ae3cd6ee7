"""RadixTree: rules T1-T8, T11, T12, T14, T17-T23, T25, T26, B32, B33 one by one."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.node import OUTPUT, PROMPT, Match, Run
from treadle.srt.cache.radix import RadixTree
from treadle.srt.errors import InvariantBroken

P = 4


class Bench:
    """A tree whose pages are numbered from 1 as they are published."""

    def __init__(self, page_size=P, policy="lru", prompt_ticks=1000):
        self.tree = RadixTree(page_size, policy, prompt_ticks)
        self.next_page = 1

    def pages(self, count):
        self.next_page += count
        return array("i", range(self.next_page - count, self.next_page))

    def put(self, tokens, *, ns=(), prompt=None, approx=0, pin=None, start=0):
        """Publish all full pages of `tokens`; returns (published, own pages)."""
        tree = self.tree
        end = len(tokens) // tree.page_size
        own = self.pages(end - start)
        held = pin or tree.pin(ns, tokens, 0, is_resume=False).pin
        prompt_end = end if prompt is None else prompt
        done = tree.publish(held, Run(tokens, start, end, own, prompt_end, approx))
        tree.unpin(held)
        tree.check()
        return done, own

    def keep(self, tokens, **options):
        """Publish and let go."""
        done, own = self.put(tokens, **options)
        self.tree.unpin(done.pin)
        self.tree.check()
        return own

    def found(self, tokens, ns=()):
        return self.tree.probe(ns, tokens, len(tokens)).pages


def test_siblings_may_share_less_than_a_page(make_ids):
    """T1: texts that part inside their first page are two children of the root."""
    bench = Bench()
    one = array("i", [1, 2, 3, 4, 5, 6, 7, 8])
    two = array("i", [1, 2, 3, 9, 5, 6, 7, 8])
    bench.keep(one)
    bench.keep(two)
    assert bench.tree.num_nodes == 2
    assert bench.found(one) == bench.found(two) == 2
    assert bench.found(array("i", [1, 2, 3, 0])) == 0


def test_probe_changes_nothing(make_ids):
    """T8: no split, no touch, no pin."""
    bench = Bench()
    bench.keep(make_ids(1, 16))
    before = [(n.id, n.key, n.tick, n.hits, n.pins) for n in bench.tree.nodes()]
    assert bench.tree.probe((), make_ids(1, 8, then=2, more=8), 16).pages == 2
    assert bench.tree.probe((("salt", "x"),), make_ids(1, 8), 8) == Match(0, 0, ())
    assert [(n.id, n.key, n.tick, n.hits, n.pins) for n in bench.tree.nodes()] == before
    assert len(bench.tree.roots()) == 1


@pytest.mark.parametrize(("limit", "pages"), [(16, 4), (15, 3), (3, 0), (0, 0), (-2, 0)])
def test_match_is_whole_pages_below_the_limit(make_ids, limit, pages):
    """T10."""
    bench = Bench()
    bench.keep(make_ids(1, 16))
    assert bench.tree.probe((), make_ids(1, 16), limit).pages == pages


def test_match_inside_a_node_splits_before_pinning(make_ids):
    """T11: only the matched half is protected."""
    bench = Bench()
    own = bench.keep(make_ids(1, 16))
    got = bench.tree.pin((), make_ids(1, 8, then=2, more=8), 15, is_resume=False)
    assert got.pages == own[:2]
    assert (bench.tree.protected_pages, bench.tree.evictable_pages) == (2, 2)
    bench.tree.unpin(got.pin)
    bench.tree.check()
    assert bench.tree.evictable_pages == 4


def test_receipt_survives_a_split_above_it(make_ids):
    """T19: the old object stays the lower half; the new upper half copies its pins."""
    bench = Bench()
    done, _ = bench.put(make_ids(1, 16))
    other = bench.tree.pin((), make_ids(1, 8), 8, is_resume=False)
    assert done.pin.node.pages == array("i", [3, 4])
    assert done.pin.node.parent is other.pin.node
    assert (other.pin.node.pins, done.pin.node.pins) == (2, 1)
    bench.tree.unpin(done.pin)
    bench.tree.unpin(other.pin)
    bench.tree.check()
    assert bench.tree.protected_pages == 0


def test_receipt_given_back_twice_is_caught(make_ids):
    """T19."""
    bench = Bench()
    done, _ = bench.put(make_ids(1, 8))
    bench.tree.unpin(done.pin)
    with pytest.raises(InvariantBroken):
        bench.tree.unpin(done.pin)


def test_touch_reaches_matched_nodes_only(make_ids):
    """T12: the half that was not matched keeps its age."""
    bench = Bench()
    bench.keep(make_ids(1, 16))
    old = bench.tree.tick
    got = bench.tree.pin((), make_ids(1, 8), 8, is_resume=False)
    (lower,) = got.pin.node.children.values()
    assert got.pin.node.tick > old
    assert lower.tick == old


def test_the_pages_of_the_tree_win(make_ids):
    """T14: the part that exists is rebound, what is new goes in."""
    bench = Bench()
    first = bench.keep(make_ids(1, 8))
    done, own = bench.put(make_ids(1, 16))
    assert done.rebound == [(0, first)]
    assert bench.tree.probe((), make_ids(1, 16), 16).pages == 4
    got = bench.tree.pin((), make_ids(1, 16), 16, is_resume=False)
    assert got.pages == first + own[2:]


def test_new_pin_is_taken_before_the_old_is_given_back(make_ids):
    """T14: nothing of the path is evictable in between."""
    bench = Bench()
    held = bench.tree.pin((), make_ids(1, 8), 0, is_resume=False).pin
    done = bench.tree.publish(held, Run(make_ids(1, 8), 0, 2, bench.pages(2), 2, 0))
    assert bench.tree.evictable_pages == 0
    bench.tree.unpin(held)
    assert bench.tree.evictable_pages == 0
    assert bench.tree.evict(9) == array("i")
    bench.tree.unpin(done.pin)
    assert len(bench.tree.evict(9)) == 2


def test_prompt_and_output_are_two_nodes(make_ids):
    """T17: split at the last page boundary inside the prompt, prompts of higher priority."""
    bench = Bench()
    bench.keep(make_ids(1, 20), prompt=3)
    assert [(len(n.pages), n.priority) for n in bench.tree.nodes()] == [(3, PROMPT), (2, OUTPUT)]


def test_output_that_is_sent_again_becomes_prompt(make_ids):
    bench = Bench()
    bench.keep(make_ids(1, 20), prompt=3)
    bench.tree.unpin(bench.tree.pin((), make_ids(1, 20), 20, is_resume=False).pin)
    assert {n.priority for n in bench.tree.nodes()} == {PROMPT}


def test_publishing_what_is_there_touches_it_with_the_larger_priority(make_ids):
    """T14, T23: the newcomer is an inserter too."""
    bench = Bench()
    bench.keep(make_ids(1, 8), prompt=0)
    bench.keep(make_ids(2, 8), prompt=0)
    bench.keep(make_ids(1, 8))
    assert [(n.priority, n.hits) for n in bench.tree.nodes()] == [(OUTPUT, 1), (PROMPT, 2)]
    assert bench.tree.evict(2) == array("i", [3, 4])


def test_pages_of_one_request_grow_one_node(make_ids):
    """A decode must not leave a node per page."""
    bench = Bench()
    tokens = make_ids(1, 40)
    done, _ = bench.put(tokens[:8], prompt=2)
    for end in range(3, 11):
        done, _ = bench.put(tokens[: 4 * end], prompt=2, pin=done.pin, start=end - 1)
    assert [len(n.pages) for n in bench.tree.nodes()] == [2, 8]
    assert {n.hits for n in bench.tree.nodes()} == {1}
    assert bench.found(tokens) == 10


def test_node_that_another_request_used_is_not_extended(make_ids):
    """Its later tail would inherit the hits, and a shorter user would not protect less."""
    bench = Bench()
    tokens = make_ids(1, 16)
    done, _ = bench.put(tokens[:8])
    bench.tree.unpin(bench.tree.pin((), tokens, 8, is_resume=False).pin)
    bench.put(tokens, pin=done.pin, start=2)
    assert [(len(n.pages), n.hits) for n in bench.tree.nodes()] == [(2, 2), (2, 1)]


def test_hits_count_a_request_once(make_ids):
    """T18: chunks and a resume add nothing; a split copies."""
    bench = Bench()
    tokens = make_ids(1, 16)
    done, _ = bench.put(tokens[:8])
    done, _ = bench.put(tokens, pin=done.pin, start=2)
    bench.tree.unpin(done.pin)
    bench.tree.unpin(bench.tree.pin((), tokens, 16, is_resume=True).pin)
    assert [n.hits for n in bench.tree.nodes()] == [1]
    bench.tree.unpin(bench.tree.pin((), tokens, 8, is_resume=False).pin)
    assert sorted(n.hits for n in bench.tree.nodes()) == [1, 2]


def test_tail_is_trimmed_when_that_is_enough(make_ids):
    """T22: a long session loses its last pages, not its head."""
    bench = Bench()
    own = bench.keep(make_ids(1, 32))
    assert bench.tree.evict(3) == own[5:]
    bench.tree.check()
    assert bench.found(make_ids(1, 32)) == 5
    assert (bench.tree.evicted_tail_pages, bench.tree.evicted_leaf_pages) == (3, 0)


def test_least_recently_used_leaf_goes_first_and_parents_follow(make_ids):
    """T7, T21."""
    bench = Bench()
    bench.keep(make_ids(1, 8, then=2, more=8))
    bench.keep(make_ids(1, 8, then=3, more=8))
    assert len(bench.tree.evict(2)) == 2
    assert bench.found(make_ids(1, 8, then=2, more=8)) == 2
    assert bench.found(make_ids(1, 8, then=3, more=8)) == 4
    assert len(bench.tree.evict(99)) == 4
    assert bench.tree.roots() == []
    bench.tree.check()


def test_pinned_path_is_never_evicted(make_ids):
    """T3, T4."""
    bench = Bench()
    bench.keep(make_ids(1, 8, then=2, more=8))
    got = bench.tree.pin((), make_ids(1, 8), 8, is_resume=False)
    assert len(bench.tree.evict(99)) == 2
    assert bench.found(make_ids(1, 8)) == 2
    bench.tree.unpin(got.pin)
    bench.tree.check()


def test_priority_of_a_prompt_ends_with_its_time(make_ids):
    """T23: after `prompt_ticks` without use a prompt goes before outputs."""
    bench = Bench(prompt_ticks=7)
    bench.keep(make_ids(1, 8))
    bench.keep(make_ids(2, 8), prompt=0)
    bench.keep(make_ids(3, 8), prompt=0)
    assert bench.found(make_ids(1, 8)) == 2
    bench.tree.evict(2)
    assert bench.found(make_ids(2, 8)) == 0
    bench.keep(make_ids(4, 8), prompt=0)
    bench.tree.evict(2)
    assert bench.found(make_ids(1, 8)) == 0


def test_namespaces_never_meet(make_ids):
    """T26: typed fields, so a LoRA called x is not a salt called x."""
    bench = Bench()
    bench.keep(make_ids(1, 8), ns=(("lora", "x"),))
    assert bench.found(make_ids(1, 8), ns=(("salt", "x"),)) == 0
    assert bench.found(make_ids(1, 8)) == 0
    bench.keep(make_ids(1, 8), ns=(("salt", "x"),))
    assert bench.tree.num_nodes == 2


def test_flush_voids_receipts_of_before(make_ids):
    """T25."""
    bench = Bench()
    done, own = bench.put(make_ids(1, 8))
    assert bench.tree.flush() == own
    bench.keep(make_ids(1, 8))
    bench.tree.unpin(done.pin)
    bench.tree.check()
    assert bench.tree.evictable_pages == 2


def test_exact_match_stops_at_the_first_approximate_node(make_ids):
    """B31: nodes do not mix. B32: exact requests stop, others take any node."""
    bench = Bench()
    done, _ = bench.put(make_ids(1, 8))
    bench.put(make_ids(1, 16), pin=done.pin, start=2, approx=1)
    found = bench.tree.probe((), make_ids(1, 16), 16)
    assert (found.pages, found.exact) == (4, 2)
    assert [n.approx for n in bench.tree.nodes()] == [0, 1]


def test_exact_newcomer_replaces_an_unpinned_approximate_node(make_ids):
    """B33."""
    bench = Bench()
    old = bench.keep(make_ids(1, 8), approx=2)
    done, own = bench.put(make_ids(1, 12))
    assert done.retired == old
    assert done.rebound == []
    got = bench.tree.pin((), make_ids(1, 12), 12, is_resume=False)
    assert (got.pages, got.approx) == (own, 0)


def test_pinned_or_exact_residents_are_not_replaced(make_ids):
    """B33, T6: somebody reads them."""
    bench = Bench()
    done, old = bench.put(make_ids(1, 8), approx=2)
    again, _ = bench.put(make_ids(1, 8))
    assert again.rebound == [(0, old)]
    assert again.approx == 2
    bench.tree.unpin(done.pin)
    bench.tree.unpin(again.pin)
    worse, _ = bench.put(make_ids(1, 8), approx=3)
    assert worse.rebound == [(0, old)] and worse.retired == array("i")


@pytest.mark.parametrize("cut", range(1, 16))
def test_common_pages_are_found_wherever_texts_part(cut):
    bench = Bench(page_size=2)
    text = array("i", range(32))
    bench.keep(text)
    other = text[:]
    other[2 * cut + 1] = 99
    assert bench.found(other) == cut
