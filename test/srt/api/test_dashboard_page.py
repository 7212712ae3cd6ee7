"""The page loads nothing, and every number on it is one that the server exports."""

from __future__ import annotations

import re
from functools import cache

from test.srt.api.test_docs_page import Links
from test.srt.sched.conftest import Loop, Setup
from treadle.srt.api.dashboard_page import COLORS, PAGE, POLICY, SLOTS
from treadle.srt.metric_names import EngineFacts
from treadle.srt.metrics import RequestMetrics


@cache
def exported() -> dict[str, float]:
    """Of a real scheduler that has served a request of a model with window layers."""
    loop = Loop(Setup(windows=2))
    loop.add("a", range(20))
    loop.drain()
    facts = EngineFacts(page_size=4, window=8, context_len=256, weight_bytes=1, kv_bytes=1)
    return RequestMetrics("m").samples(*loop.scheduler.stats(), facts)


def test_page_loads_nothing():
    links = Links()
    links.feed(PAGE)
    assert links.targets == []
    assert {"link", "img", "iframe", "object"}.isdisjoint(links.tags)
    assert "url(" not in PAGE
    assert "@import" not in PAGE
    assert "default-src 'none'" in POLICY
    assert "connect-src 'self'" in POLICY


def test_every_number_is_exported():
    pattern = r'data-(?:metric|rate|share|of|part)="([^"]+)"'
    named = set(re.findall(pattern, PAGE))
    assert len(named) >= 20
    assert named <= exported().keys()
    drawn = set(re.findall(r"'((?:treadle|sglang):[\w]+)'", PAGE))
    assert drawn and drawn <= exported().keys()


def test_every_state_of_pages_and_slots_has_its_part():
    for metric in ("treadle:pages", "treadle:window_slots"):
        states = {key for key in exported() if key.startswith(metric + "{")}
        assert states == set(re.findall(rf'data-part="({metric}{{[^"]+)"', PAGE))
    assert {state for state, _ in SLOTS} <= COLORS.keys()
