"""Streams of ids and of text, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.srt.tokenizer.detokenize import Detokenizer, StopMatcher
from treadle.srt.tokenizer.encode import Tokenizer

from .conftest import GgufWriter


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special, after_prompt=False)
    return [*(detokenizer.push(index) for index in ids), detokenizer.flush()]


@given(ids=st.lists(st.integers(0, 310)), skip_special=st.booleans())
def test_stream_equals_decode_for_any_ids(tiny: Tokenizer, ids: list[int], skip_special: bool):
    pushed = stream(tiny, ids, skip_special=skip_special)
    assert "".join(pushed) == tiny.decode(ids, skip_special=skip_special)


@given(text=st.text().map(lambda text: text.replace("\ufffd", "")))
def test_no_cut_of_a_character_is_ever_seen(tiny: Tokenizer, text: str):
    ids = tiny.encode(text, add_special=False)
    pushed = stream(tiny, ids, skip_special=False)
    assert "\ufffd" not in "".join(pushed)
    assert pushed[-1] == ""  # nothing certain was held back
    assert "".join(pushed) == text


def test_character_comes_with_its_last_byte(tiny: Tokenizer):
    ids = tiny.encode("😀!", add_special=False)
    assert stream(tiny, ids, skip_special=False) == ["", "", "", "😀", "!", ""]


def test_unfinished_character_is_flushed_as_a_replacement(tiny: Tokenizer):
    ids = tiny.encode("😀", add_special=False)[:-1]
    assert stream(tiny, ids, skip_special=False) == ["", "", "", "\ufffd"]


def test_special_tokens_are_skipped_or_shown(tiny: Tokenizer):
    assert stream(tiny, [2, 1], skip_special=True) == ["", "", ""]
    assert stream(tiny, [2, 1], skip_special=False) == ["<turn>", "<eos>", ""]


@pytest.mark.parametrize(("after_prompt", "expected"), [(True, " a a"), (False, "a a")])
def test_dummy_space_goes_only_at_the_start_of_a_text(
    sentencepiece_file: GgufWriter, after_prompt: bool, expected: str
):
    tokenizer = Tokenizer.load(sentencepiece_file({}))
    detokenizer = Detokenizer(tokenizer, skip_special=True, after_prompt=after_prompt)
    ids = tokenizer.encode("a a", add_special=True)
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == expected


def test_shown_bos_keeps_the_space_behind_it(sentencepiece_file: GgufWriter):
    tokenizer = Tokenizer.load(sentencepiece_file({}))
    ids = tokenizer.encode("a", add_special=True)
    assert "".join(stream(tokenizer, ids, skip_special=False)) == "<s> a"
    assert tokenizer.decode(ids, skip_special=False) == "<s> a"


def first_match(text: str, stops: tuple[str, ...]) -> tuple[int, str] | None:
    """(start, stop) of the match that is complete first, the longest of several; by trying all."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return end - len(stop), stop
    return None


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    marks = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in zip(marks, marks[1:], strict=False)]


TEXTS = st.text(alphabet="ab", max_size=30)
STOPS = st.lists(st.text(alphabet="ab", max_size=5), max_size=4).map(tuple)
CUTS = st.lists(st.integers(0, 1000), max_size=12)


@given(text=TEXTS, stops=STOPS, cuts=CUTS, keep=st.booleans())
def test_text_ends_before_the_first_stop_wherever_it_is_cut(
    text: str, stops: tuple[str, ...], cuts: list[int], keep: bool
):
    matcher = StopMatcher(stops, keep=keep)
    shown = "".join(matcher.push(piece)[0] for piece in pieces_of(text, cuts))
    match = first_match(text, stops)
    if match is None:
        assert matcher.matched is None
        assert shown + matcher.flush() == text
    else:
        start, stop = match
        assert matcher.matched == stop
        assert shown == text[: start + len(stop) if keep else start]


@given(text=TEXTS, stops=STOPS, cuts=CUTS)
def test_exactly_the_possible_beginning_of_a_stop_is_held_back(
    text: str, stops: tuple[str, ...], cuts: list[int]
):
    matcher = StopMatcher(stops, keep=False)
    shown = seen = ""
    for piece in pieces_of(text, cuts):
        emitted, matched = matcher.push(piece)
        if matched is not None:
            return
        shown, seen = shown + emitted, seen + piece
        open_ends = [
            n for stop in stops for n in range(len(stop)) if n == 0 or seen.endswith(stop[:n])
        ]
        assert shown == seen[: len(seen) - max(open_ends, default=0)]


def test_match_is_reported_once_and_for_all():
    matcher = StopMatcher(("END",), keep=False)
    assert matcher.push("one E") == ("one ", None)
    assert matcher.push("ND two") == ("", "END")
    assert matcher.push("three") == ("", "END")
    assert matcher.flush() == ""


def test_kept_stop_is_shown_without_what_follows():
    matcher = StopMatcher(("END",), keep=True)
    assert matcher.push("one E") == ("one E", None)
    assert matcher.push("ND two") == ("ND", "END")
    assert matcher.flush() == ""


def test_false_start_is_released():
    matcher = StopMatcher(("\n\nUser:",), keep=False)
    assert [matcher.push(x)[0] for x in ("a\n", "\nUs", "e it")] == ["a", "", "\n\nUse it"]
