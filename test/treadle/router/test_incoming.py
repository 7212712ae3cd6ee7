"""What the router reads of a request (rules A1, A4, A23)."""

from __future__ import annotations

import orjson
import pytest

from treadle.router import incoming
from treadle.router.incoming import ReadRules, read_incoming
from treadle.router.keys import KeyRules

RULES = ReadRules(KeyRules())


def read(body, path="/v1/chat/completions", rules=RULES, method="POST", **headers: str):
    raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    scope = {"method": method, "path": path, "query_string": b"q=1"}
    return read_incoming(scope, raw, data, rules)


def test_a_header_that_names_the_session_leaves_the_body_unparsed(monkeypatch):  # A4
    def no_parsing(body):
        raise AssertionError(body)

    monkeypatch.setattr(incoming, "_parse", no_parsing)
    found = read({"session_id": "b", "messages": []}, x_session_id="s")
    assert found.keys.source == "header" and found.text == b""
    with pytest.raises(AssertionError):
        read({"session_id": "b"})
    with pytest.raises(AssertionError):
        read({"rid": "r"}, x_session_id="s")


def test_a_body_that_is_no_json_is_left_to_the_replica():
    for body in (b"{", b"[1]", b"\xff", b"", b"3"):
        found = read(body)
        assert found.body == body and found.keys.key is None


def test_ids_come_from_the_body_a_header_or_here():  # A23
    assert read({"rid": "r"}, x_request_id="h").rids == ("r",)
    assert read({"rid": ["a", "b"]}, x_session_id="s").rids == ("a", "b")
    assert read({}, x_request_id="h").rids == ("h",)
    made = read({}, x_request_id="x" * 300)
    assert len(made.rids[0]) == 32 and not made.has_own_rid
    assert read({}, path="/v1/messages").rids[0].startswith("msg_")


def test_texts_are_read_when_the_policy_compares_them():  # A10
    rules = ReadRules(KeyRules(), wants_text=True)
    assert read({"text": "abc"}, rules=rules, x_session_id="s").text == b"abc"


def test_sessions_of_different_keys_differ_when_isolated():  # T30
    rules = ReadRules(KeyRules(), is_isolated=True)
    one = read({}, rules=rules, x_session_id="s", authorization="Bearer a").keys.key
    assert one != read({}, rules=rules, x_session_id="s", authorization="Bearer b").keys.key
    assert one == read({}, rules=rules, x_session_id="s", authorization="Bearer a").keys.key


def test_what_may_be_repeated():  # 4.5
    assert read({"text": "a"}, path="/generate").is_repeatable
    assert read(b"", path="/v1/models", method="GET").is_repeatable
    assert not read({}, path="/update_weights").is_repeatable
    assert not read({"session_id": "s"}, path="/open_session").is_repeatable
    turn = {"text": "a", "session_params": {"id": "s"}}
    assert not read(turn, path="/generate", x_session_id="x").is_repeatable
    assert read(turn, path="/generate").session == "s"


def test_the_target_is_what_came():
    assert read({}).target == "/v1/chat/completions?q=1"


def test_a_target_that_came_decoded_breaks_no_line():
    scope = {"method": "GET", "path": "/a\r\nb \u4e00/%20"}
    assert read_incoming(scope, [], b"", RULES).target == "/a%0D%0Ab%20%E4%B8%80/%20"
