"""The page of a trace: complete, self-contained, and safe whatever a model wrote."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend
from test.treadle.lang.test_trace import everything, scripted
from treadle.lang.trace_view import page, timeline


class Tags(HTMLParser):
    """Counts tags, and fails on one that is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_entry_is_a_bar_and_a_row(backend: FakeBackend):
    scripted(backend)
    trace = everything.run().trace()
    tags = Tags()
    tags.feed(page(trace))
    assert tags.open == []
    assert tags.seen.count("rect") == len(trace.entries) == tags.seen.count("details")
    assert not re.search(r"(src|href)=|url\(|@import", page(trace))


def test_children_are_drawn_below_their_parent(backend: FakeBackend):
    scripted(backend)
    trace = everything.run().trace()
    root, *children = trace.branches
    names = re.findall(r'preserve">(\s*\w+)<', timeline(trace))
    assert names == [root.id[:8], *("  " + child.id[:8] for child in children)]


def test_what_a_model_writes_is_no_markup(backend: FakeBackend):
    backend.reply = lambda request: "<script>alert(1)</script>"
    state = tr.function(lambda s: s.append("<b>" + tr.gen("x"))).run()
    text = page(state.trace())
    assert "<script" not in text and "<b>" not in text


def test_a_failed_run_says_so(backend: FakeBackend):
    backend.reply = lambda request: tr.Refused(400, "bad")
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run()
    assert "ended in Refused: HTTP 400: bad" in page(state.trace())
