"""Server-side sessions have hard affinity (4.6)."""

from __future__ import annotations

from treadle.router.sessions import ServerSessions


def test_sessions_stay_until_closed_or_lost():
    sessions = ServerSessions()
    for name, replica in (("s1", "a"), ("s2", "b"), ("s3", "a")):
        sessions.opened(name, replica)
    assert sessions.replica_of("s1") == "a" and sessions.replica_of("nobody") is None
    sessions.closed("s3")
    sessions.closed("s3")
    assert sessions.lose(lambda name: name == "b") == 1
    assert sessions.replica_of("s1") is None and sessions.replica_of("s2") == "b"


def test_the_map_is_bounded():  # A3
    sessions = ServerSessions(capacity=2)
    for i in range(5):
        sessions.opened(f"s{i}", "a")
    assert len(sessions) == 2 and sessions.replica_of("s4") == "a"
