"""The table of replicas (rules A11, A13, A18)."""

from __future__ import annotations

import pytest

from treadle.router.fleet import Fleet
from treadle.router.ledger import LoadRules
from treadle.router.lifecycle import LifeRules, Probe, State
from treadle.router.outcomes import Evidence
from treadle.router.replicas import Address, Replicas

A, B = Address("http://a:1"), Address("http://b:1")


def replicas_of(*addresses: Address) -> Replicas:
    replicas = Replicas(Fleet(), LifeRules(drain_timeout_s=300.0), LoadRules())
    for address in addresses:
        replicas.add(address, is_first=True)
        replicas.probed(address.name, Probe.READY, 0.0)
    return replicas


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://a:1", A),
        (" http://a:1/ ", A),
        ("a:1", A),
        ("https://h/base/", Address("https://h/base")),
        ("http://a:1@3", Address("http://a:1", 3)),
    ],
)
def test_addresses_are_read(text: str, address: Address):  # A11
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "ftp://a", "http://", "http://a b", "http://a@x"])
def test_other_addresses_are_refused(text: str):
    with pytest.raises(ValueError, match="address"):
        Address.parse(text)


def test_ranks_of_a_server_are_replicas_of_their_own():  # A11
    replicas = replicas_of(Address("http://a:1", 0), Address("http://a:1", 1))
    assert [r.name for r in replicas] == ["http://a:1@0", "http://a:1@1"]
    assert {r.url for r in replicas} == {"http://a:1"}


def test_only_ready_replicas_are_eligible():
    replicas = replicas_of(A, B)
    replicas.add(Address("http://c:1"))
    assert replicas.fleet.eligible() == [A.name, B.name]
    for _ in range(3):
        replicas.note(A.name, Evidence.FAILURE, 1.0)
    assert replicas.fleet.eligible() == [B.name]
    assert replicas.counts() == {
        State.STARTING: 1, State.READY: 1, State.SUSPECT: 1, State.DRAINING: 0, State.GONE: 0,
    }  # fmt: skip


def test_neutral_evidence_changes_nothing():  # A15
    replicas = replicas_of(A)
    for _ in range(50):
        replicas.note(A.name, Evidence.NEUTRAL, 1.0)
        replicas.note(A.name, Evidence.SUCCESS, 1.0)
    assert replicas.fleet.eligible() == [A.name]
    replicas.note("nobody", Evidence.FAILURE, 1.0)


def test_a_drained_replica_goes_when_its_last_request_has_ended():  # A13
    replicas = replicas_of(A, B)
    ticket = replicas.ledger.open(A.name, 100, 0)
    replicas.dismiss(A.name, 10.0)
    assert replicas.fleet.eligible() == [B.name]
    assert replicas.refresh(309.0) == []
    (late,) = replicas.refresh(310.0)
    assert late.name == A.name
    replicas.ledger.close(ticket)
    assert replicas.refresh(311.0) == []
    assert replicas.get(A.name) is None and late.life.state is State.GONE
    assert len(replicas) == 1


def test_following_a_list_adds_and_drains():  # A18
    added = Address("http://by-hand:1")
    replicas = replicas_of(added)
    replicas.follow([A, B], 4.0, is_first=True)
    for address in (A, B):
        replicas.probed(address.name, Probe.READY, 4.0)
    ticket = replicas.ledger.open(A.name, 100, 0)
    c = Address("http://c:1")
    replicas.follow([B, c], 5.0)
    assert replicas.get(A.name).life.state is State.DRAINING
    assert replicas.get(c.name).life.state is State.STARTING
    assert replicas.fleet.eligible() == [added.name, B.name]
    replicas.ledger.close(ticket)
    replicas.refresh(6.0)
    assert [r.name for r in replicas] == [added.name, B.name, c.name]


def test_a_listed_replica_that_an_operator_drained_stays_away():  # A13, A18
    replicas = replicas_of()
    replicas.follow([A, B], 1.0, is_first=True)
    replicas.dismiss(A.name, 2.0)
    for now in (3.0, 4.0):
        replicas.follow([A, B], now)
        assert [r.name for r in replicas] == [B.name]
    replicas.follow([B], 5.0)
    replicas.follow([A, B], 6.0)  # it was taken out of the list and put back
    assert {r.name for r in replicas} == {A.name, B.name}
    replicas.dismiss(A.name, 7.0)
    replicas.add(A)  # the operator wants it back
    replicas.follow([A, B], 8.0)
    assert {r.name for r in replicas} == {A.name, B.name}


def test_adding_twice_gives_the_same():
    replicas = replicas_of(A)
    assert replicas.add(A) is replicas.get(A.name)
    assert len(replicas) == 1


def test_weights_follow_time():  # A16
    replicas = replicas_of(A)
    replicas.add(B)
    replicas.probed(B.name, Probe.READY, 100.0)
    replicas.refresh(115.0)
    keys = range(3000)
    share = sum(replicas.fleet.first(key * 0x9E3779B97F4A7C15 % 2**64) == B.name for key in keys)
    assert share / 3000 == pytest.approx(1 / 3, abs=0.04)
