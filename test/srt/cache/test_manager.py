"""CacheManager: adoption, leases, publishing, quarantine and accounting, rule by rule."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.lease import Origin, PrefixHit
from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.errors import InvariantBroken
from treadle.srt.model_config import LayerKind

FLAT = ReplayShape("bounded", 0, 1)
EXACT = ReplayShape("exact", 3, 1)


def run(manager, tokens, *, upto=None, shape=FLAT, ns=(), limit=None, final=False):
    """Admit and compute `upto` tokens; returns the admission, still open."""
    upto = len(tokens) if upto is None else upto
    cap = len(tokens) - 1 if limit is None else limit
    got = manager.admit(ns, tokens, cap, shape, 0)
    assert manager.grow(got.lease, upto) is not None
    manager.publish(got.lease, tokens, upto, None, is_final=final)
    manager.check()
    return got


def seed(manager, tokens, **options):
    """A finished request over `tokens`."""
    manager.release(run(manager, tokens, final=True, **options).lease, None)
    manager.check()


V41 = (LayerKind.WINDOW,) * 40
ADOPTION = [
    # W, P, k, n, matched, cap, H, R, s, rows run, new pages
    (128, 64, 1, 1000, 960, 999, 960, 128, 832, 168, 1),
    (128, 64, 1, 960, 960, 959, 896, 128, 768, 192, 1),
    (128, 64, 1, 200, 192, 199, 192, 128, 64, 136, 1),
    (128, 64, 1, 200, 128, 199, 0, 0, 0, 200, 4),
    (128, 64, 1, 1000, 960, 499, 448, 128, 320, 680, 9),
    (512, 16, 1, 700, 640, 699, 640, 512, 128, 572, 4),
    (512, 16, 2, 700, 640, 699, 0, 0, 0, 700, 44),
    (128, 64, 1, 131372, 131072, 131371, 131072, 128, 130944, 428, 5),
    (128, 64, 1, 192, 192, 191, 0, 0, 0, 192, 3),
]


@pytest.mark.parametrize("row", ADOPTION)
def test_adoption_table(gemma_kinds, row):
    """Section 3.2: B1, B2 and what they mean for rows, pages and usage (B37). The first eight rows
    are the design's; the last is a full repeat of three pages."""
    window, page, depth, n, matched, cap, hit, replayed, start, rows, new = row
    shape = ReplayShape("bounded", 0, depth)
    rule = ReplayRule(gemma_kinds if window == 512 else V41, window, shape, page)
    manager = CacheManager(CacheFacts(5000, 3, page, True, "lru"), rule)
    tokens = array("i", range(n))
    seed(manager, array("i", range(matched)))
    got = manager.admit((), tokens, cap, shape, 0)
    assert (got.hit.length, got.hit.replayed, got.hit.start) == (hit, replayed, start)
    assert n - got.hit.start == rows
    assert len(got.lease.pages) == hit // page
    grown = manager.grow(got.lease, n)
    assert grown is not None and len(grown) == new
    assert 0 <= got.hit.replayed <= got.hit.length <= n - 1
    assert hit % 2 == 0  # B3


def test_refused_admission_leaves_no_trace(make_manager, make_ids):
    """B30: for lack of pages and for lack of a slot."""
    manager = make_manager(num_pages=9, num_slots=2)
    seed(manager, make_ids(1, 24))
    tokens = make_ids(1, 24, then=2, more=12)
    before = (
        (manager.counters(), manager.gauges()),
        [(n.tick, n.hits, n.key) for n in manager.tree.nodes()],
    )
    assert manager.admit((), tokens, 35, FLAT, 9) is None
    assert (
        (manager.counters(), manager.gauges()),
        [(n.tick, n.hits, n.key) for n in manager.tree.nodes()],
    ) == before
    got = manager.admit((), tokens, 35, FLAT, 8)
    before = (manager.counters(), manager.gauges())
    assert manager.admit((), make_ids(3, 8), 7, FLAT, 0) is None
    assert (manager.counters(), manager.gauges()) == before
    manager.release(got.lease, None)
    manager.check()


def test_admission_does_not_count_its_own_hit_as_evictable(make_manager, make_ids):
    """T24: 8 pages, 6 of them the hit: 2 are left for the request, not 8."""
    manager = make_manager(num_pages=9)
    seed(manager, make_ids(1, 24))
    tokens = make_ids(1, 24, then=2, more=12)
    assert manager.available_pages == 8
    assert manager.admit((), tokens, 35, FLAT, 6 + 3) is None
    got = manager.admit((), tokens, 35, FLAT, 6 + 2)
    assert manager.grow(got.lease, 32) is not None
    assert manager.grow(got.lease, 36) is None
    manager.check()


def test_admission_looks_again_whatever_a_probe_said(make_manager, make_ids):
    """T9: the hint of a waiting request is stale after an eviction."""
    manager = make_manager()
    seed(manager, make_ids(1, 24))
    tokens = make_ids(1, 24, then=2, more=4)
    assert manager.probe((), tokens, 27, FLAT).length == 24
    manager.evict(3)
    got = manager.admit((), tokens, 27, FLAT, 0)
    assert got.hit.length == 12
    manager.check()


def test_growth_evicts_or_changes_nothing(make_manager, make_ids):
    """T24."""
    manager = make_manager(num_pages=9)
    seed(manager, make_ids(1, 24))
    got = manager.admit((), make_ids(2, 40), 39, FLAT, 0)
    assert len(manager.grow(got.lease, 16)) == 4
    before = (manager.counters(), manager.gauges())
    assert manager.grow(got.lease, 40) is None
    assert (manager.counters(), manager.gauges()) == before
    assert len(manager.grow(got.lease, 32)) == 4
    assert len(manager.grow(got.lease, 30)) == 0
    assert manager.counters()["evicted_pages{kind=tail}"] == 2
    manager.check()


def test_border_moves_by_whole_pages_and_never_back(make_manager, make_ids):
    """T13, T15."""
    manager = make_manager()
    tokens = make_ids(1, 20)
    got = manager.admit((), tokens, 19, FLAT, 0)
    manager.grow(got.lease, 20)
    borders = []
    for upto in (3, 7, 8, 8, 5, 19):
        manager.publish(got.lease, tokens, upto, None)
        borders.append(got.lease.protected_len)
        manager.check()
    assert borders == [0, 4, 8, 8, 8, 16]


def test_two_equal_prompts_and_a_third_that_reuses_the_duplicates(make_manager, make_ids):
    """T14, T31; section 7, test 6."""
    manager = make_manager(num_pages=12)
    tokens = make_ids(1, 16)
    one = manager.admit((), tokens, 15, FLAT, 0)
    two = manager.admit((), tokens, 15, FLAT, 0)
    first, second = manager.grow(one.lease, 16), manager.grow(two.lease, 16)
    assert manager.publish(one.lease, tokens, 16, 5) == []
    assert manager.publish(two.lease, tokens, 16, 5) == [(0, first)]
    assert two.lease.pages == first
    assert manager.gauges()["pages{state=quarantine}"] == 4
    third = manager.admit((), make_ids(3, 20), 19, FLAT, 0)
    assert manager.grow(third.lease, 16) is None
    manager.committed(4)
    assert manager.grow(third.lease, 16) is None
    manager.committed(5)
    assert set(manager.grow(third.lease, 16)) & set(second)
    assert manager.counters()["dedup_pages"] == 4
    manager.check()


def test_released_pages_and_slot_wait_for_the_step_in_flight(make_manager, make_ids):
    """T31, S10; the published part is evictable at once."""
    manager = make_manager(num_pages=7, num_slots=2)
    got = run(manager, make_ids(1, 22))
    manager.release(got.lease, 3)
    manager.check()
    assert manager.gauges()["pages{state=quarantine}"] == 1
    assert manager.gauges()["pages{state=evictable}"] == 5
    assert manager.admit((), make_ids(2, 8), 7, FLAT, 0) is None
    manager.committed(3)
    manager.check()
    assert manager.admit((), make_ids(2, 8), 7, FLAT, 6).lease.slot == got.lease.slot


def test_lease_is_released_once(make_manager, make_ids):
    """T32: exactly one place frees a request."""
    manager = make_manager()
    got = run(manager, make_ids(1, 8))
    manager.release(got.lease, None)
    with pytest.raises(InvariantBroken):
        manager.release(got.lease, None)
    manager.check()


def test_pages_of_an_aborted_request_are_found_again(make_manager, make_ids):
    """T36."""
    manager = make_manager()
    got = run(manager, make_ids(1, 40), upto=24)
    manager.release(got.lease, 0)
    assert manager.probe((), make_ids(1, 40), 39, FLAT).length == 24


def test_a_longer_prefix_of_somebody_else_is_not_adopted_between_chunks(make_manager, make_ids):
    """T39: only computed pages are rebound."""
    manager = make_manager()
    tokens = make_ids(1, 32)
    got = manager.admit((), tokens, 31, FLAT, 0)
    manager.grow(got.lease, 8)
    seed(manager, tokens)
    manager.publish(got.lease, tokens, 8, None)
    assert (got.lease.protected_len, len(got.lease.pages)) == (8, 2)
    manager.check()


def test_prompt_border_of_a_resumed_request_is_that_of_its_prompt(make_manager, make_ids):
    """T17, T44, B37: resume is no second query."""
    manager = make_manager()
    tokens = make_ids(1, 24)
    before = manager.counters()
    got = manager.admit((), tokens, 23, FLAT, 0, Origin(resumed_prompt_len=10))
    manager.grow(got.lease, 24)
    manager.publish(got.lease, tokens, 24, None)
    assert [len(n.pages) for n in manager.tree.nodes()] == [2, 4]
    assert manager.counters() == before


def test_exact_request_stops_at_approximate_pages(make_manager, make_ids):
    """B31, B32, B34: pages after a bounded replay are approximate, those of a cold run are not."""
    manager = make_manager(windows=3)
    text = make_ids(1, 16, then=2, more=16)
    seed(manager, text[:16])
    warm = run(manager, text)
    assert (warm.hit.length, warm.lease.approx) == (16, 1)
    manager.release(warm.lease, None)
    longer = array("i", [*text, *make_ids(3, 16)])
    assert manager.probe((), longer, 47, FLAT).length == 32
    strict = manager.probe((), longer, 47, EXACT)
    assert strict.length == 16
    assert strict.dropped == (("exactness", 16),)
    assert run(manager, longer).lease.approx == 2
    assert manager.gauges()["tree_nonexact_ratio"] == 8 / 12


def test_exact_replay_of_exact_pages_is_exact(make_manager, make_ids):
    """B31: R reaches the exact depth 3 * (W-1) = 9."""
    manager = make_manager(windows=3)
    seed(manager, make_ids(1, 16))
    got = manager.admit((), make_ids(1, 16, then=2, more=8), 23, EXACT, 0)
    assert (got.hit.length, got.hit.replayed, got.lease.approx) == (16, 9, 0)


def test_hits_without_window_layers_are_exact_and_replay_nothing(make_manager, make_ids):
    manager = make_manager()
    seed(manager, make_ids(1, 16))
    got = manager.admit((), make_ids(1, 16, then=2, more=8), 23, FLAT, 0)
    assert (got.hit.length, got.hit.start, got.lease.approx) == (16, 16, 0)


def test_exact_request_is_not_rebound_while_it_runs(make_manager, make_ids):
    """T16: it publishes at its end, and then heals approximate pages nobody reads (B33)."""
    manager = make_manager(windows=3)
    text = make_ids(1, 16, then=2, more=16)
    seed(manager, text[:16])
    seed(manager, text)
    got = manager.admit((), text, 31, EXACT, 0)
    own = manager.grow(got.lease, 32)
    assert manager.publish(got.lease, text, 32, None) == []
    assert got.lease.protected_len == 16
    manager.publish(got.lease, text, 32, 7, is_final=True)
    assert manager.gauges()["pages{state=quarantine}"] == 4
    assert got.lease.pages[4:] == own
    manager.release(got.lease, 7)
    manager.committed(7)
    manager.check()
    assert manager.gauges()["tree_nonexact_ratio"] == 0.0


def test_request_rebound_to_approximate_pages_is_approximate_from_then_on(make_manager, make_ids):
    """B31: adopting is adopting, also after the fact."""
    manager = make_manager(windows=3)
    text = make_ids(1, 16, then=2, more=24)
    cold = manager.admit((), text, 39, FLAT, 0)
    manager.grow(cold.lease, 40)
    seed(manager, text[:16])
    held = run(manager, text[:32])
    assert held.lease.approx == 1
    manager.publish(cold.lease, text, 32, None)
    assert cold.lease.approx == 1
    manager.publish(cold.lease, text, 40, None)
    assert [n.approx for n in manager.tree.nodes()] == [0, 1, 1]
    manager.check()


def test_mode_off_takes_and_counts_no_hit(make_manager, make_ids):
    manager = make_manager(windows=3)
    seed(manager, make_ids(1, 32))
    off = manager.rule.shape("off", None)
    assert manager.probe((), make_ids(1, 33), 32, off).length == 0


def test_cache_that_is_off_neither_finds_nor_publishes(make_manager, make_ids):
    manager = make_manager(prefix_cache=False)
    seed(manager, make_ids(1, 32))
    assert manager.probe((), make_ids(1, 32), 31, FLAT) == PrefixHit(0, 0, ())
    assert manager.gauges()["pages{state=free}"] == 63
    assert manager.tree.roots() == []


def test_dropped_tokens_are_counted_by_reason(make_manager, make_ids):
    """3.14: each matched token is either a hit or dropped for one reason."""
    manager = make_manager(windows=3)
    seed(manager, make_ids(1, 24))
    tokens = make_ids(1, 24, then=2, more=8)
    hit = manager.probe((), tokens, 13, FLAT)
    assert (hit.length, hit.dropped) == (12, (("logprob", 12),))
    short = manager.probe((), tokens, 7, FLAT)
    assert short.dropped == (("logprob", 20), ("short", 4))
    before = manager.counters()
    assert manager.admit((), tokens, 7, FLAT, 0).hit == short
    after = manager.counters()
    assert after["prefix_query_tokens"] - before["prefix_query_tokens"] == 32
    assert after["prefix_hit_dropped_tokens{reason=short}"] == 4
    assert after["prefix_hit_dropped_tokens{reason=logprob}"] == 20
    assert after["prefix_hit_tokens"] == 0


def test_flush_waits_for_the_last_lease(make_manager, make_ids):
    """T25."""
    manager = make_manager()
    got = run(manager, make_ids(1, 16))
    assert not manager.flush()
    manager.release(got.lease, None)
    assert manager.flush()
    manager.check()
    assert manager.gauges()["pages{state=free}"] == 63


def test_states_of_pages_add_up(make_manager, make_ids):
    """T5."""
    manager = make_manager()
    seed(manager, make_ids(1, 16))
    run(manager, make_ids(1, 16, then=2, more=7))
    manager.release(run(manager, make_ids(3, 9)).lease, 1)
    pages = {k: v for k, v in manager.gauges().items() if k.startswith("pages")}
    assert pages == {
        "pages{state=free}": 63 - 9,
        "pages{state=evictable}": 2,
        "pages{state=protected}": 5,
        "pages{state=private}": 1,
        "pages{state=quarantine}": 1,
    }
    assert manager.gauges().items() >= pages.items()


def test_publishing_pages_that_were_never_taken_is_caught(make_manager, make_ids):
    manager = make_manager()
    got = manager.admit((), make_ids(1, 16), 15, FLAT, 0)
    with pytest.raises(InvariantBroken):
        manager.publish(got.lease, make_ids(1, 16), 16, None)
