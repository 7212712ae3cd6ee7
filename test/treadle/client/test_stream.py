"""Server-sent events, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.client.stream import EventReader, read_events

CASES = {
    "data: a\n\ndata: b\n\n": ["a", "b"],
    "data: a\ndata: b\n\n": ["a\nb"],
    ": comment\n\ndata:a\nid: 7\nretry: 3\n\n": ["a"],
    "data: a\r\n\r\ndata: b\r\n\r\n": ["a", "b"],
    "data: a\r\rdata: b\r\r": ["a", "b"],
    "data: \u2028\u0085\n\n": ["\u2028\u0085"],
    "data: cut off": [],
    "data: cut off\n": [],
    "\ufeffdata: a\n\n": ["a"],
    "event: x\n\n": [],
    "data:  two\n\ndata\n\n": [" two", ""],
}


@pytest.mark.parametrize(("text", "found"), CASES.items())
def test_events_are_read_as_the_specification_says(text: str, found: list[str]):
    assert EventReader().feed(text.encode()) == found


@settings(max_examples=60)
@given(st.sampled_from(list(CASES)), st.lists(st.integers(0, 40)))
def test_the_cuts_do_not_matter(text: str, cuts: list[int]):
    data, reader, found = text.encode(), EventReader(), []
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in zip(bounds, bounds[1:], strict=False):
        found += reader.feed(data[start:end])
    assert found == CASES[text]


async def test_a_stream_of_chunks_is_a_stream_of_events():
    async def chunks():
        yield b"data: a\n"
        yield b"\ndata: b\n\n"

    assert [event async for event in read_events(chunks())] == ["a", "b"]
