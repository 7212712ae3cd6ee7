"""What may come next: masks, forced ids, ends, and vocabularies of every odd kind."""

from __future__ import annotations

import json
from random import Random
from zlib import crc32

import pytest

from test.grammars import EOS, pieces, table
from treadle.srt.errors import BadRequest
from treadle.srt.grammar.compile import (
    after_free_text,
    from_choices,
    from_json_schema,
    json_object,
)
from treadle.srt.grammar.mask import Matcher, NextRow, Prototype, Vocabulary
from treadle.srt.token_masks import Grammar, GrammarKind

SIZE = 200
SPELLED = pieces(SIZE)
VOCABULARY = Vocabulary(table(SPELLED), SIZE)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "ok", "tags"],
    "additionalProperties": False,
}


def allowed(row: NextRow) -> set[int]:
    return {i for i in range(len(row.words) * 32) if row.words[i // 32] >> i % 32 & 1}


def begin(grammar: Grammar, *, stops: tuple[int, ...] = (EOS,), jumps: bool = True) -> Matcher:
    return Prototype(grammar, VOCABULARY).start(frozenset(stops), jumps=jumps)


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


def walk(matcher: Matcher, rng: Random, limit: int = 400) -> bytes:
    """A random answer: any allowed id is taken."""
    row, out = matcher.first(), b""
    for _ in range(limit):
        out += b"".join(SPELLED[i] for i in row.forced)
        assert not row.error
        if row.is_done:
            return out
        token = rng.choice(sorted(allowed(row)))
        if token == EOS:
            return out
        out += SPELLED[token]
        row = matcher.after([token])
    raise AssertionError("no end")


@pytest.mark.parametrize("jumps", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_any_allowed_path_is_an_answer_of_the_schema(seed: int, jumps: bool):
    value = json.loads(walk(begin(from_json_schema(SCHEMA), jumps=jumps), Random(seed)))
    assert list(value) == ["name", "ok", "tags"]
    assert isinstance(value["name"], str)
    assert isinstance(value["ok"], bool)
    assert set(value["tags"]) <= {"a", "b"}
    assert len(value["tags"]) <= 3


@pytest.mark.parametrize("choices", [["yes", "no"], ['a"b\\', "a\nb", "a"], ["yes", "yesterday"]])
def test_choice_is_one_of_its_strings(choices: list[str]):
    found = {walk(begin(from_choices(choices)), Random(i)).decode() for i in range(40)}
    assert found == set(choices)


def test_forced_ids_spell_the_same_as_sampled_ones():
    grammar = from_json_schema(SCHEMA)
    for seed in range(10):
        texts = []
        for jumps in (True, False):
            matcher, row, out = begin(grammar, jumps=jumps), None, b""
            row = matcher.first()
            while not row.is_done:
                out += b"".join(SPELLED[i] for i in row.forced)
                choices = sorted(allowed(row))
                token = choices[crc32(out, seed) % len(choices)]  # by the text so far only
                out += SPELLED[token]
                row = matcher.after([token])
            texts.append(out + b"".join(SPELLED[i] for i in row.forced))
        assert texts[0] == texts[1]


def test_end_is_allowed_only_where_the_grammar_accepts():
    matcher = begin(regex("ab?"))
    assert allowed(matcher.first()) == {ord("a")}
    row = matcher.after([ord("a")])
    assert allowed(row) == {EOS, ord("b")}
    assert not row.is_done
    assert matcher.after([ord("b")]).is_done


def test_end_that_the_request_ignores_is_not_allowed():
    matcher = begin(regex("ab?"), stops=())
    matcher.first()
    row = matcher.after([ord("a")])
    assert allowed(row) == {ord("b")}
    row = matcher.after([ord("b")])
    assert row.is_done
    assert not allowed(row)


def test_empty_answer_is_done_at_once():
    assert begin(regex("")).first().is_done


def test_logits_beyond_the_vocabulary_are_never_allowed():
    """Models pad their vocabulary; a mask covers every logit."""
    wide = Vocabulary(table(SPELLED), SIZE + 57)
    row = Prototype(json_object(), wide).start(frozenset([EOS]), jumps=True).first()
    assert len(row.words) == -(-(SIZE + 57) // 32)
    assert max(allowed(row)) < SIZE


def test_any_of_several_ends_may_come_and_an_end_is_never_text():
    many = Vocabulary(table([*SPELLED[:-1], b"<end>"], eos=(EOS, SIZE - 1)), SIZE)
    matcher = Prototype(regex("(<end>)?"), many).start(frozenset([EOS, SIZE - 1]), jumps=True)
    assert allowed(matcher.first()) == {EOS, SIZE - 1, ord("<")}
    one = Prototype(regex("a?"), many).start(frozenset([SIZE - 1]), jumps=True)
    assert allowed(one.first()) == {SIZE - 1, ord("a")}


def test_vocabulary_without_an_end_still_ends():
    endless = Vocabulary(table(SPELLED, eos=()), SIZE)
    matcher = Prototype(regex("ab?"), endless).start(frozenset(), jumps=True)
    assert allowed(matcher.first()) == {ord("a")}
    assert allowed(matcher.after([ord("a")])) == {ord("b")}
    assert matcher.after([ord("b")]).is_done


def test_grammar_beyond_the_vocabulary_is_an_error_before_any_token():
    row = begin(regex("\u4e00")).first()
    assert row.error == "no token of the vocabulary continues the answer"


def test_id_that_was_not_allowed_is_an_error():
    matcher = begin(regex("ab"))
    matcher.first()
    row = matcher.after([ord("z")])
    assert row.error
    assert "<" not in row.error


@pytest.mark.parametrize(
    "grammar", [from_json_schema(SCHEMA), regex("[ab]/c"), from_choices(["x", "y"])]
)
@pytest.mark.parametrize("close_id", [None, SIZE - 1])
def test_free_text_may_come_before_an_answer(grammar: Grammar, close_id: int | None):
    close = "</think>\n"
    vocabulary = Vocabulary(table([*SPELLED[:-1], close.encode()], eos=(EOS, SIZE - 1)), SIZE)
    given = after_free_text(grammar, close, close_id)
    matcher = Prototype(given, vocabulary).start(frozenset([EOS]), jumps=True)
    assert EOS not in allowed(matcher.first())
    row = NextRow()
    for char in b'so {"</think> ':
        row = matcher.after([char])
        assert not row.error
        assert EOS not in allowed(row)
    ending = [close_id] if close_id is not None else list(close.encode())
    for token in ending:
        row = matcher.after([token])
    bare = Prototype(grammar, vocabulary).start(frozenset([EOS]), jumps=True)
    assert row.forced or allowed(row) == allowed(bare.first())


def test_masks_that_cost_too_much_are_an_error_in_words():
    with pytest.raises(BadRequest, match="invalid lark: "):
        begin(Grammar(GrammarKind.LARK, "start: A\nA: /(.*a.{12})/ & /(.*b.{13})/ & ~/(.*c.{14})/"))


def words_of(row: NextRow, index: int) -> set[int]:
    return allowed(NextRow(row.ahead[index]))


def test_drafts_are_walked_up_to_the_first_that_is_not_allowed_and_forgotten():
    a, b, c, d, e = map(ord, "abcde")
    matcher = begin(regex("a[bc][cd]+e"), jumps=False)
    matcher.first()
    row = matcher.after([a], [b, d, a, c])
    assert (row.drafts, len(row.ahead)) == ((b, d), 2)
    assert allowed(row) == {b, c}
    assert words_of(row, 0) == {c, d} and words_of(row, 1) == {c, d, e}
    again = matcher.after([b, d, c])  # as if nothing had been walked
    assert allowed(again) == {c, d, e}


def test_no_draft_is_run_with_which_the_answer_could_not_go_on():
    """What would be sampled behind it is nothing."""
    a, b = map(ord, "ab")
    matcher = begin(regex("ab?"))
    matcher.first()
    row = matcher.after([a], [b, EOS])
    assert (row.drafts, row.ahead) == ((), ())
    assert allowed(row) == {b, EOS}
    assert matcher.after([b]).is_done


def test_drafts_go_on_behind_forced_ids_that_they_guessed():
    ids = [ord(x) for x in "xyz"]
    matcher = begin(regex("axyz[01]+"))
    matcher.first()
    row = matcher.after([ord("a")], [*ids, ord("1"), ord("2")])
    assert list(row.forced) == ids and row.drafts == (ord("1"),)
    matcher = begin(regex("axyz[01]+"))
    matcher.first()
    assert matcher.after([ord("a")], [ord("x"), ord("1")]).drafts == ()
