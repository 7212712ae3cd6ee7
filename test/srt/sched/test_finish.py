"""Rules of finishing as a function of the tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from treadle.srt.messages import Finish, SamplingParams
from treadle.srt.sched.finish import after_token, by_intent, not_finite, out_of_pages
from treadle.srt.sched.request import Request


def request(num_output: int, *, least: int = 0, max_known: int = 100) -> Request:
    sampling = SamplingParams(max_new_tokens=90, min_new_tokens=least)
    return SimpleNamespace(  # type: ignore[return-value]
        stop_ids={7}, num_output=num_output, sampling=sampling, len=10 + num_output,
        max_known=max_known,
    )  # fmt: skip


def test_a_stop_id_names_itself():
    assert after_token(request(1), 7) == Finish("stop", matched=7)


def test_other_ids_go_on():
    assert after_token(request(1), 8) is None


@pytest.mark.parametrize(("num_output", "ends"), [(3, False), (4, True)])
def test_the_least_number_of_outputs_holds_no_stop_id(num_output: int, ends: bool):
    assert (after_token(request(num_output, least=3), 7) is not None) == ends


def test_the_last_allowed_token_ends_by_length():
    assert after_token(request(5, max_known=15), 8) == Finish("length")


def test_a_stop_id_as_last_allowed_token_is_a_stop():
    assert after_token(request(5, max_known=15), 7) == Finish("stop", matched=7)


def test_a_stop_string_is_no_abort():
    assert by_intent("stop") == Finish("stop")


@pytest.mark.parametrize("reason", ["client", "user"])
def test_aborts_say_who(reason: str):
    end = by_intent(reason)
    assert (end.reason, end.status) == ("abort", 499)
    assert reason in end.message


def test_errors_have_a_status_and_a_message():
    assert not_finite().status == 500
    assert out_of_pages(12).status == 503
    assert "12 pages" in out_of_pages(12).message
