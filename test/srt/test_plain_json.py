"""JSON in prompts and calls."""

from __future__ import annotations

from treadle.srt.plain_json import plain_json


def test_one_line_with_letters_as_they_are():
    assert plain_json({"ä": ["日本", 'a"b', None, 1.5]}) == '{"ä": ["日本", "a\\"b", null, 1.5]}'
