"""JSON to the letter, while it comes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from treadle.srt.parse.feed import Feed
from treadle.srt.parse.json_text import Malformed, read_key, read_object, read_scalar, read_string

T = TypeVar("T")


def ended(text: str) -> Feed:
    feed = Feed()
    feed.add(text)
    feed.is_ended = True
    return feed


def result(steps: Generator[None, None, T]) -> T:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        value: T = stop.value
        return value


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("{} rest", 2),
        ('{"a": "}\\"{"} rest', 13),
        ("[{}, [1.50]] rest", 12),
        ("{'a': 1} rest", 8),
    ],
)
def test_an_object_is_passed_on_to_its_end_and_no_further(text: str, length: int):
    feed, parts = ended(text), list[str]()
    assert result(read_object(feed, parts.append))
    assert "".join(parts) == text[:length]
    assert feed.unread == text[length:]


@pytest.mark.parametrize(("text", "taken"), [('{"a": 1', 7), ("{]", 1), ("{</tool>", 1), ("[}", 1)])
def test_what_does_not_end_is_passed_on_up_to_the_mistake(text: str, taken: int):
    feed, parts = ended(text), list[str]()
    assert not result(read_object(feed, parts.append))
    assert "".join(parts) == text[:taken]


def test_arguments_come_as_soon_as_they_are_there():
    feed, parts = Feed(), list[str]()
    feed.add('{"path": "a')
    steps = read_object(feed, parts.append)
    next(steps)
    assert "".join(parts) == '{"path": "a'


@pytest.mark.parametrize(("text", "value"), [('"a\\u00e9\\n"', "aé\n"), ('"\\ud800"', "?")])
def test_strings_are_decoded_and_hold_no_half_surrogates(text: str, value: str):
    assert result(read_string(ended(text), 100)) == value


@pytest.mark.parametrize("text", ["", "a", '"a', '"\\q"', '"' + "x" * 200 + '"'])
def test_no_string(text: str):
    with pytest.raises(Malformed):
        result(read_string(ended(text), 100))


def test_scalar_and_key():
    assert result(read_scalar(ended("-1.5e3, "))) == "-1.5e3"
    with pytest.raises(Malformed):
        result(read_scalar(ended("}")))
    assert result(read_key(ended(' "name" : 1'))) == "name"
    with pytest.raises(Malformed):
        result(read_key(ended('"name" 1')))
