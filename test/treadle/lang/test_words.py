"""The words make the nodes that they say."""

from __future__ import annotations

import inspect

import pytest

import treadle as tr
from treadle.lang.ir import Agent, Chain, Gen, Select, Text

# fmt: off
SGLANG_GEN = [
    "name", "max_tokens", "min_tokens", "n", "stop", "stop_token_ids", "stop_regex", "temperature",
    "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "ignore_eos",
    "return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs", "dtype",
    "choices", "choices_method", "regex", "json_schema",
]
# fmt: on


def test_gen_has_the_arguments_of_sglang_in_their_order():
    assert list(inspect.signature(tr.gen).parameters)[: len(SGLANG_GEN)] == SGLANG_GEN


def test_words_and_texts_are_added_in_their_order():
    expr = "a" + tr.gen("x") + "b" + tr.select("y", ["1"])
    assert isinstance(expr, Chain) and list(expr.names()) == ["x", "y"]
    assert isinstance(expr.parts[0], Chain)
    first = expr.parts[0].parts[0]
    assert isinstance(first, Chain) and first.parts[0] == Text("a")


def test_choices_make_a_selection():
    expr = tr.gen("x", choices=["a"], choices_method="greedy_token_selection")
    assert isinstance(expr, Select) and expr.method is tr.greedy_token_selection


def test_types_become_regular_expressions():
    expr = tr.gen_int("x", 4)
    assert isinstance(expr, Gen) and expr.sampling.regex and expr.sampling.max_new_tokens == 4
    assert isinstance(tr.gen_string("x"), Gen)


def test_an_agent_has_its_own_sampling():
    expr = tr.agent("a", [], 3, max_total_tokens=10, temperature=0)
    assert isinstance(expr, Agent) and expr.sampling.given() == {"temperature": 0}
    assert (expr.budget.max_turns, expr.budget.max_total_tokens) == (3, 10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tr.gen("x", regex="a", dtype=int), "dtype and regex exclude one another"),
        (lambda: tr.gen("x", choices=["a"], json_schema={}), "choices and json_schema exclude"),
        (lambda: tr.select("x", []), "at least one choice"),
        (lambda: tr.select("x", ["a"], temperature=1.0), "temperature must be 0, got 1.0"),
        (lambda: tr.user(), "user needs an expression"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make, words):
    with pytest.raises(tr.ProgramError, match=words):
        make()


def test_reasoning_has_a_name_of_its_own():
    expr = tr.separate_reasoning(tr.gen("x"))
    assert list(expr.names()) == ["x", "x_reasoning_content"]


@pytest.mark.parametrize("choices", ["yes", [1, 2]])
def test_choices_are_a_list_of_texts(choices):
    with pytest.raises(tr.ProgramError, match="list of strings"):
        tr.select("a", choices)
