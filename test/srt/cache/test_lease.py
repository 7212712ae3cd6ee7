"""PrefixHit and Admission: what they derive."""

from __future__ import annotations

from treadle.srt.cache.lease import PrefixHit


def test_replayed_rows_are_the_hit_minus_its_start():
    """B4: a start of 0 is no flag; R says whether anything is replayed."""
    assert PrefixHit(128, 0, 128, 128, ()).replayed == 128
    assert PrefixHit(0, 0, 0, 0, ()).replayed == 0


def test_reason_is_the_one_that_lost_most():
    assert PrefixHit(0, 0, 0, 64, (("logprob", 16), ("short", 48))).dropped_reason == "short"
    assert PrefixHit(64, 0, 64, 64, ()).dropped_reason == ""


def test_admission_shows_its_lease(make_manager, make_ids):
    manager = make_manager()
    got = manager.admit((), make_ids(1, 8), 7, manager.rule.default, 2)
    assert (got.slot, got.pin, got.exact, got.generation) == (
        got.lease.slot,
        got.lease.pin,
        True,
        0,
    )
    assert got.lease.is_exact
    assert got.pages is not got.lease.pages
