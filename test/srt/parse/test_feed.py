"""Reading text that has not come yet."""

from __future__ import annotations

import pytest

from treadle.srt.parse.events import Content
from treadle.srt.parse.feed import Feed, OutputParser, Steps, find_first, held_back


def test_the_longest_word_wins_even_if_a_shorter_one_is_already_there():
    class Words(OutputParser):
        def _run(self) -> Steps[None]:
            self._content((yield from self._feed.starts(("``", "```json"))))

    parser = Words()
    assert parser.push("``") == []
    assert parser.push("`json") == [Content("```json")]


def test_rewind_gives_back_what_was_read():
    feed = Feed()
    feed.add("abc")
    start = feed.mark()
    assert feed.take(2) == "ab"
    assert feed.since(start) == "ab"
    feed.rewind(start)
    assert feed.unread == "abc"


@pytest.mark.parametrize(
    ("text", "length"),
    [("a<", 1), ("a<to", 3), ("a<tool>", 0), ("<to<", 1), ("", 0), ("<tool", 5), ("x\n\n<", 3)],
)
def test_held_back_is_the_longest_end_that_may_go_on(text: str, length: int):
    assert held_back(text, ("<tool>", "\n\n<b")) == length


def test_the_word_that_begins_first_is_found():
    assert find_first("ab<x><y>", ("<y>", "<x>")) == (2, "<x>")
    assert find_first("ab", ("<y>",)) == (2, "")


@pytest.mark.parametrize(("text", "found"), [("ab;", ("ab", ";")), ("abcdef;", None), ("ab", None)])
def test_until_gives_up_at_its_limit(text: str, found: tuple[str, str] | None):
    feed = Feed()
    feed.add(text)
    feed.is_ended = True
    steps = feed.until((";",), 4)
    with pytest.raises(StopIteration) as stopped:
        next(steps)
    assert stopped.value.value == found
