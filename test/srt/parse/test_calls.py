"""All dialects: recorded outputs, and the invariant that a stream gives what the whole gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.cutting import calls, check_events, check_every_prefix, content, parse, random_pieces
from test.srt.parse.outputs import OUTPUTS, Calls
from treadle.srt.parse.calls import CallParser
from treadle.srt.parse.tools import DIALECTS

KNOWN = {"f", "g"}


def rows() -> Iterator[tuple[str, str, str, Calls]]:
    for dialect, outputs in OUTPUTS.items():
        for text, words, found in outputs:
            yield dialect, text, words, found


def make(dialect: str) -> CallParser:
    return DIALECTS[dialect].parser(KNOWN)


@pytest.mark.parametrize(("dialect", "text", "words", "found"), [*rows()])
def test_recorded_output(dialect: str, text: str, words: str, found: Calls):
    events = parse(lambda: make(dialect), [text])
    assert calls(events) == found
    assert content(events) == words


@pytest.mark.parametrize(("dialect", "text"), [row[:2] for row in rows()])
def test_every_prefix_of_an_output_streams_to_its_whole(dialect: str, text: str):
    check_every_prefix(lambda: make(dialect), text)


def fragments(dialect: str) -> st.SearchStrategy[str]:
    """Pieces of real outputs in any order, so that markers meet in ways no model was asked for."""
    pieces = sorted({p for text, _, _ in OUTPUTS[dialect] for p in random_pieces(text, 7)})
    odd = st.text("{}[]\"'\\<>｜: ,\nf(=)", max_size=4)
    marks = st.sampled_from(sorted({*DIALECTS[dialect].marks, *pieces, "{", "}", '"name"'}))
    whole = st.sampled_from([text for text, _, _ in OUTPUTS[dialect]])
    return st.lists(st.one_of(marks, odd, whole), max_size=8).map("".join)


@pytest.mark.parametrize("dialect", OUTPUTS)
@settings(max_examples=60)
@given(data=st.data())
def test_no_cut_changes_a_generated_output(dialect: str, data: st.DataObject):
    text = data.draw(fragments(dialect))
    end = data.draw(st.integers(0, len(text)))
    expected = parse(lambda: make(dialect), [text[:end]])
    check_events(expected)
    assert parse(lambda: make(dialect), text[:end]) == expected
    seed = data.draw(st.integers(0, 9))
    assert parse(lambda: make(dialect), random_pieces(text[:end], seed)) == expected


@pytest.mark.parametrize("dialect", OUTPUTS)
@given(text=st.text(st.characters(exclude_characters="[{<", codec="utf-8"), max_size=40))
def test_text_without_the_beginning_of_a_marker_is_content_to_the_letter(dialect: str, text: str):
    assert content(parse(lambda: make(dialect), text)) == text
