"""From deltas to events, in any cut: what all chat routes are made of."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from test.cutting import random_pieces
from test.serving import EOS, byte_tokenizer
from test.srt.parse.outputs import OUTPUTS
from treadle.srt.api.chat_output import (
    CallStart,
    ChatOutput,
    ChatText,
    Finished,
    OutputEvent,
    OutputRules,
    ReasoningWishes,
    after_prompt,
    whole,
)
from treadle.srt.messages import Usage
from treadle.srt.parse.events import Content, Reasoning
from treadle.srt.parse.reasoning import FORMATS
from treadle.srt.parse.tools import DIALECTS
from treadle.srt.tokenizer.choice import Delta
from treadle.srt.tokenizer.trail import Ending

STOP = Ending("stop", EOS)
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
THINKING = OutputRules(
    reasoning=FORMATS["qwen3"], dialect=DIALECTS["hermes"], tool_names=frozenset({"f", "g"})
)
ANSWER = "<think>\nI need f.\n</think>\n\nOne moment.\n" + CALL + "\n" + CALL


def delta(text: str, ending: Ending | None = None) -> Delta:
    return Delta(0, text, tuple(text.encode()), (), Usage(1, 1, 0, 0), ending)


def events(rules: OutputRules, pieces: list[str], ending: Ending = STOP) -> list[OutputEvent]:
    output = ChatOutput(rules, byte_tokenizer())
    found = [event for piece in pieces for event in output.push(delta(piece))]
    return [*found, *output.push(delta("", ending))]


def without_ids(text: ChatText) -> ChatText:
    return replace(text, calls=[replace(call, id="") for call in text.calls])


def test_reasoning_content_calls_and_end_in_order():
    text = whole(events(THINKING, [ANSWER]))
    assert text.reasoning == "I need f."
    assert text.content == "One moment."
    assert [(call.name, call.arguments) for call in text.calls] == [("f", '{"a": 1}')] * 2
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", call.id) for call in text.calls)
    assert text.calls[0].id != text.calls[1].id
    assert text.ending == Ending("tool_calls", EOS)


@pytest.mark.parametrize("dialect", OUTPUTS)
def test_any_cut_of_an_answer_sums_up_to_the_whole(dialect: str):
    rules = replace(THINKING, dialect=DIALECTS[dialect])
    for output, _, _ in OUTPUTS[dialect]:
        answer = "<think>\nI need it.\n</think>\n\n" + output
        for end in range(len(answer) + 1):
            expected = without_ids(whole(events(rules, [answer[:end]])))
            cut = events(rules, random_pieces(answer[:end], end))
            assert without_ids(whole(cut)) == expected


def test_one_call_only_when_more_are_not_wanted():
    text = whole(events(replace(THINKING, max_calls=1), [ANSWER]))
    assert len(text.calls) == 1
    assert text.ending == Ending("tool_calls", EOS)


@pytest.mark.parametrize(
    ("answer", "ending", "reason"),
    [
        (CALL, STOP, "tool_calls"),
        (CALL[:-20], Ending("length"), "length"),
        (CALL, Ending("abort", None, "x"), "abort"),
        ("no call", STOP, "stop"),
    ],
)
def test_finish_reasons(answer: str, ending: Ending, reason: str):
    (last,) = [e for e in events(THINKING, [answer], ending) if isinstance(e, Finished)]
    assert last.ending.reason == reason
    assert last.ending.matched == ending.matched


def test_reasoning_can_come_in_one_piece_when_it_ends():
    rules = replace(THINKING, wishes=ReasoningWishes(is_streamed=False))
    found = events(rules, list(ANSWER))
    assert [e for e in found if isinstance(e, Reasoning)] == [Reasoning("I need f.")]
    assert isinstance(found[0], Reasoning)
    assert events(rules, ["<think>cut"])[0] == Reasoning("cut")


def test_reasoning_can_be_left_out_and_is_counted_nevertheless():
    output = ChatOutput(replace(THINKING, wishes=ReasoningWishes(is_shown=False)), byte_tokenizer())
    found = output.push(delta("<think>hm</think>yes", STOP))
    assert [e for e in found if not isinstance(e, Finished)] == [Content("yes")]
    assert output.reasoning_tokens == len("<think>hm</think>")


@pytest.mark.parametrize(
    ("text", "is_open", "count"),
    [
        ("<think>abc</think>rest", None, 18),
        ("abc</think>rest", True, 11),
        ("abc", True, 3),
        ("abc", None, 0),
        ("<think>é", None, 9),
    ],
)
def test_reasoning_tokens_do_not_depend_on_the_cut(text: str, is_open: bool | None, count: int):
    rules = replace(THINKING, is_open=is_open)
    for pieces in ([text], list(text), random_pieces(text, 3)):
        output = ChatOutput(rules, byte_tokenizer())
        for piece in pieces:
            output.push(delta(piece))
        assert output.reasoning_tokens == count


def test_the_prompt_says_whether_reasoning_has_begun():
    tokenizer = byte_tokenizer()
    for tail, expected in (("x<think>\n", True), ("</think>\n\n", False), ("assistant:", None)):
        rules = after_prompt(THINKING, tokenizer, tokenizer.encode(tail, add_special=True))
        assert rules.is_open is expected


def test_plain_rules_pass_text_on():
    assert events(OutputRules(), ["<think>", CALL]) == [
        Content("<think>"),
        Content(CALL),
        Finished(STOP),
    ]
    assert OutputRules().is_plain


def test_a_call_is_named_before_its_arguments_come():
    output = ChatOutput(THINKING, byte_tokenizer())
    (start, *_) = output.push(delta('<tool_call>{"name": "f", "arguments": {'))
    assert isinstance(start, CallStart)
    assert (start.index, start.name) == (0, "f")
