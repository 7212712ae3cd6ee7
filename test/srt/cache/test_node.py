"""Match: pages of a path that admission must not count as evictable."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.node import Match, RadixNode


def chain(*nodes):
    """Nodes given as (pages, pins), top first, below a root."""
    above = RadixNode(0, b"", array("i"), None, ns=())
    path = []
    for number, (pages, pins) in enumerate(nodes, 1):
        above = RadixNode(number, b"", array("i", range(pages)), above, pins=pins)
        path.append(above)
    return Match(sum(pages for pages, _ in nodes), 0, tuple(path))


@pytest.mark.parametrize(("pages", "loose"), [(0, 0), (2, 0), (4, 0), (5, 1), (7, 3), (9, 5)])
def test_unpinned_pages_are_counted_up_to_the_adopted_length(pages, loose):
    """T24: a pinned node of 4 pages, then unpinned ones of 3 and 2."""
    assert chain((4, 1), (3, 0), (2, 0)).unpinned(pages) == loose


def test_a_root_is_never_evictable():
    root = RadixNode(0, b"", array("i"), None, ns=())
    assert not root.is_evictable
    assert chain((1, 0)).path[0].is_evictable
