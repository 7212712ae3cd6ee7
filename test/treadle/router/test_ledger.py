"""Load in tokens (rule A8)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.treadle.router.test_fleet import fleet_of
from treadle.router.ledger import Ledger, LoadRules, reported_tokens

RULES = LoadRules(decode_weight=2.0, decode_tokens=50.0)  # 100 tokens a decode


def ledger_of() -> Ledger:
    ledger = Ledger(fleet_of("ab"), RULES)
    for name in "ab":
        ledger.add(name)
    return ledger


def load(ledger: Ledger, name: str = "a") -> float:
    return ledger._fleet.load(name)


def test_a_request_costs_its_uncached_prompt_then_its_output_then_nothing():
    ledger = ledger_of()
    ticket = ledger.open("a", 4000, 3000)
    assert load(ledger) == 250 + 100
    assert load(ledger, "b") == 0
    ledger.answered(ticket)
    assert load(ledger) == 100
    ledger.answered(ticket)
    assert load(ledger) == 100
    ledger.close(ticket)
    ledger.close(ticket)
    assert load(ledger) == 0 and ledger.num_live("a") == 0


def test_a_report_replaces_what_was_sent_before_it_was_asked_for():
    ledger = ledger_of()
    ticket = ledger.open("a", 4000, 0)
    ledger.report("a", 5000.0, ledger.number)
    assert load(ledger) == 5000  # other routers send too
    ledger.close(ticket)
    assert load(ledger) == 5000 - 1100


def test_a_stale_report_does_not_undo_later_requests():
    ledger = ledger_of()
    asked_at = ledger.number
    ticket = ledger.open("a", 4000, 0)
    ledger.report("a", 0.0, asked_at)
    assert load(ledger) == 1100
    ledger.report("a", 700.0, ledger.number)
    ledger.report("a", 9999.0, asked_at)  # overtaken
    assert load(ledger) == 700
    ledger.close(ticket)
    assert load(ledger) == 0  # never below zero


def test_requests_of_a_removed_replica_end_without_effect():
    ledger = ledger_of()
    ticket = ledger.open("a", 4000, 0)
    ledger.remove("a")
    ledger.answered(ticket)
    ledger.close(ticket)
    ledger.report("a", 5.0, 9)
    assert ledger.num_live("a") == 0


STEP = st.tuples(st.sampled_from(["open", "answered", "close", "report"]), st.integers(0, 9))


@settings(max_examples=100)
@given(st.lists(STEP, max_size=60))
def test_load_is_what_is_live_whatever_the_order_and_ends_at_zero(steps):
    """With truthful reports load equals the sum over live requests at any time."""
    ledger, tickets = ledger_of(), []
    for step, index in steps:
        if step == "open":
            tickets.append(ledger.open("a", 400 * index, 0))
        elif step == "report":
            live = [t for t in tickets if ledger._accounts["a"].live.get(t.number) is t]
            ledger.report("a", sum(t.prefill + t.decode for t in live), ledger.number)
        elif index < len(tickets):
            getattr(ledger, step)(tickets[index])
        costs = (t.prefill + t.decode for t in ledger._accounts["a"].live.values())
        assert load(ledger) == pytest.approx(sum(costs))
    for ticket in tickets:
        ledger.close(ticket)
    assert load(ledger) == 0


def test_reports_are_read_from_loads():
    entry: dict[str, object] = {"num_running_reqs": 3, "num_waiting_reqs": 2}
    assert reported_tokens(entry, RULES) == 2 * 50 + 5 * 100
    assert reported_tokens({**entry, "num_uncached_tokens": 800}, RULES) == 800 + 500
    assert reported_tokens({"num_running_reqs": "x"}, RULES) is None
