"""Ids to visible text: stop strings, stop ids, cuts anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from test.serving import EOS, byte_tokenizer
from treadle.srt.messages import Finish
from treadle.srt.tokenizer.trail import TextRules, TextTrail

TOKENIZER = byte_tokenizer()
END = Finish("length")


def run(ids: list[int], cuts: list[int], rules: TextRules, min_ids: int = 0) -> tuple[str, int]:
    """(text, ids that counted) when the ids come in the pieces that `cuts` say."""
    trail, text, count, start = TextTrail(TOKENIZER, rules, min_ids), "", 0, 0
    ends = [*sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    for i, end in enumerate(ends):
        piece = trail.push(ids[start:end], END if i == len(ends) - 1 else None)
        text, count, start = text + piece.text, count + piece.num_ids, end
        if piece.stop is not None:
            break
    return text, count


@given(st.text(alphabet="ab€", max_size=12), st.lists(st.integers(0, 40), max_size=5))
def test_text_does_not_depend_on_how_ids_arrive(text: str, cuts: list[int]):
    rules = TextRules(stop=("aa", "b€"))
    ids = list(text.encode())
    found, count = run(ids, cuts, rules)
    stops = [text.find(stop) for stop in rules.stop if stop in text]
    assert (found, count) == run(ids, [], rules)
    assert found == (text if not stops else text[: min(stops)])


def test_stop_id_is_hidden_unless_kept():
    end = Finish("stop", matched=ord("c"))
    ids = list(b"abc")
    assert TextTrail(TOKENIZER, TextRules(), 0).push(ids, end).text == "ab"
    assert TextTrail(TOKENIZER, TextRules(keep_stop=True), 0).push(ids, end).text == "abc"
    other = Finish("stop", matched=ord("x"))
    assert TextTrail(TOKENIZER, TextRules(), 0).push(ids, other).text == "abc"


def test_held_back_text_comes_out_at_the_end():
    trail = TextTrail(TOKENIZER, TextRules(stop=("stop",)), 0)
    assert trail.push(list(b"a sto"), None).text == "a "
    assert trail.push([EOS], Finish("stop", matched=EOS)).text == "sto"
    half = TextTrail(TOKENIZER, TextRules(), 0)
    assert half.push(list("€".encode())[:2], None).text == ""
    assert half.push([], END).text == "\ufffd"


def test_stop_strings_do_not_count_before_the_minimum():
    assert run(list(b"aXbXc"), [], TextRules(stop=("X",)), min_ids=3) == ("aXb", 4)


def test_special_tokens_are_shown_when_asked():
    rules = TextRules(skip_special_tokens=False)
    assert TextTrail(TOKENIZER, rules, 0).push([104, EOS], None).text == "h<eos>"
