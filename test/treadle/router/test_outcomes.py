"""What the end of an attempt means (rule A15 and the table of retries, 4.5)."""

from __future__ import annotations

import pytest

from treadle.router.outcomes import (
    Again,
    Break,
    Evidence,
    RetryBudget,
    after_break,
    after_status,
    back_off,
    evidence_of,
)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 404, 413, 422, 499, 501])
def test_answers_and_bad_requests_are_successes(status: int):  # A15
    assert evidence_of(status) is Evidence.SUCCESS


@pytest.mark.parametrize("status", [429, 503])
def test_back_pressure_is_neutral(status: int):  # A15
    assert evidence_of(status) is Evidence.NEUTRAL


@pytest.mark.parametrize("status", [500, 502, 504, 599])
def test_other_server_errors_are_failures(status: int):  # A15
    assert evidence_of(status) is Evidence.FAILURE


@pytest.mark.parametrize(
    ("status", "was_admitted", "again"),
    [
        (503, False, Again.BUSY),
        (429, False, Again.BUSY),
        (503, True, Again.NO),
        (500, True, Again.ABORT_FIRST),
        (502, True, Again.ABORT_FIRST),
        (504, True, Again.ABORT_FIRST),
        (501, True, Again.NO),
        (400, False, Again.NO),
        (404, True, Again.NO),
        (200, True, Again.NO),
    ],
)
def test_only_these_statuses_are_tried_again(status: int, was_admitted: bool, again: Again):
    found = after_status(status, was_admitted=was_admitted, is_repeatable=True)
    assert found is again
    never = after_status(status, was_admitted=was_admitted, is_repeatable=False)
    assert never is Again.NO


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (Break.NOT_SENT, Again.FAILED),
        (Break.NO_ANSWER, Again.ABORT_FIRST),
        (Break.TIMEOUT, Again.NO),
        (Break.MID_BODY, Again.NO),
    ],
)
def test_only_these_breaks_are_tried_again(kind: Break, again: Again):
    assert after_break(kind, is_repeatable=True) is again
    assert after_break(kind, is_repeatable=False) is Again.NO


def test_retries_are_a_share_of_traffic_and_a_burst():
    budget = RetryBudget(share=0.1, burst=3.0)
    assert not budget.take()  # nothing has come yet
    budget.arrived()
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    taken = 0
    for _ in range(1000):
        budget.arrived()
        taken += budget.take()
    assert taken == pytest.approx(100, abs=1)


def test_back_off_doubles_and_has_jitter():
    assert back_off(1, 0.05, 0.0) == 0.025 and back_off(1, 0.05, 1.0) == 0.05
    assert back_off(3, 0.05, 1.0) == 0.2
