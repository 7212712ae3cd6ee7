"""Routes of control are never among those that need no key."""

from __future__ import annotations

from treadle.srt.api.edge import OPEN_PATHS
from treadle.srt.net.control_paths import CONTROL_PATHS


def test_no_route_of_control_is_open_and_none_is_named_twice():
    assert not OPEN_PATHS & set(CONTROL_PATHS)
    assert len(CONTROL_PATHS) == len(set(CONTROL_PATHS))
