"""PrefixHit: what it derives."""

from __future__ import annotations

from treadle.srt.cache.lease import PrefixHit


def test_replayed_rows_are_the_hit_minus_its_start():
    """B4: a start of 0 is no flag; R says whether anything is replayed."""
    assert PrefixHit(128, 0, ()).replayed == 128
    assert PrefixHit(0, 0, ()).replayed == 0
