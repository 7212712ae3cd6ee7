"""Answers of an earlier run, found by what is asked."""

from __future__ import annotations

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend
from treadle.lang.backend import Answer, AnswerRequest, ScoreRequest, Scores
from treadle.lang.past import Past
from treadle.lang.prompt import TextPrompt
from treadle.lang.recorder import Entry
from treadle.lang.sampling import Sampling
from treadle.lang.tools import ToolCall, ToolResult


def request(text: str, **sampling) -> AnswerRequest:
    return AnswerRequest(TextPrompt(text), Sampling(**sampling))


def entry(asked, told, kind="generate") -> Entry:
    return Entry(kind, "b", "x", asked, 0.0, 1.0, told)


def test_the_same_question_is_answered_in_the_old_order_and_then_no_more():
    past = Past([entry(request("a"), [Answer("1")]), entry(request("a"), [Answer("2")])])
    assert [past.answers(request("a")) for _ in range(2)] == [[Answer("1")], [Answer("2")]]
    assert past.answers(request("a")) is None


def test_another_question_is_not():
    past = Past([entry(request("a", seed=1), [Answer("1")])])
    assert past.answers(request("a", seed=2)) is None and past.answers(request("b")) is None


def test_calls_are_the_same_whatever_their_ids():
    past = Past([entry(ToolCall("c1", "add", "{}"), ToolResult("3"), "tool")])
    assert past.result(ToolCall("c9", "add", "{}")) == ToolResult("3")


def test_what_did_not_end_is_asked_again():
    past = Past([entry(request("a"), None), entry(ScoreRequest((), ()), Scores(()), "select")])
    assert past.answers(request("a")) is None
    assert past.scores(ScoreRequest((), ())) == Scores(())


def test_recalled_answers_are_told_to_who_watches(backend: FakeBackend):
    program = tr.function(lambda s: s.append("a" + tr.gen("x")))
    first = program.run()
    again = program.run(resume=first.trace(), stream=True)
    assert list(again.text_iter("x")) == ["42"] and len(backend.asked) == 1
