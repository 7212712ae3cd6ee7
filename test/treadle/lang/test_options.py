"""Options of a run."""

from __future__ import annotations

import pytest

import treadle as tr
from treadle.lang.ir import Logprobs
from treadle.lang.options import read_options, stop_strings
from treadle.lang.trace import Trace


def test_what_is_no_option_is_an_argument_of_the_program():
    given = {"max_tokens": 5, "stop": (), "json_schema": {"type": "object"}, "word": 1,
             "stream": True, "use_thread": False, "top_p": None}  # fmt: skip
    options, rest = read_options(given, frozenset({"s", "word"}))
    assert rest == {"word": 1} and options.is_streaming
    assert options.sampling.given() == {
        "max_new_tokens": 5, "temperature": 1.0, "json_schema": '{"type": "object"}',
    }  # fmt: skip


def test_logprobs_are_asked_for_or_not_there():
    options, _ = read_options({"return_logprob": True, "top_logprobs_num": 2}, frozenset())
    assert options.logprobs == Logprobs(-1, 2, False)
    options, _ = read_options({"top_logprobs_num": 2}, frozenset())
    assert options.logprobs is None


def test_a_trace_may_be_given_by_its_file(tmp_path):
    path = Trace("p", "b", 0.0, 1.0, (), ()).save(tmp_path / "t.json")
    options, _ = read_options({"resume": path}, frozenset())
    assert options.resume is not None and options.resume.program == "p"


def test_stop_strings_are_a_list_or_one():
    assert stop_strings(("a", "b")) == ["a", "b"] and stop_strings([]) is None
    assert stop_strings("a") == "a" and stop_strings(None) is None


@pytest.mark.parametrize("session_id", ["", "a\nb", "\u00e9", " a", 7])
def test_a_session_is_named_by_what_a_header_can_hold(session_id):
    with pytest.raises(tr.ProgramError, match="session_id must be"):
        read_options({"session_id": session_id}, frozenset())
