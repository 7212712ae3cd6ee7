"""Where session keys come from (rules A1 to A4)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from treadle.router.keys import DEFAULT_SOURCES, KeyRules, find_keys, hash_key, header_keys

RULES = KeyRules()
TURN = {"role": "user", "content": "go"}


def key_of(headers=None, body=None, rules=RULES, namespace=""):
    return find_keys(headers or {}, body, rules, namespace).key


def test_sources_are_asked_in_order_and_the_first_wins():  # A1
    body = {
        "session_params": {"session_id": "b"},
        "session_id": "c",
        "prompt_cache_key": "d",
        "user": "e",
        "previous_response_id": "f",
        "messages": [TURN, {"role": "assistant", "content": "a"}, TURN],
    }
    everything = KeyRules(sources=("header", "body", "prompt_cache_key", "user",
                                   "previous_response_id", "derived"))  # fmt: skip
    found = [find_keys({"x-session-id": "a"}, body, everything)]
    for name in ("session_params", "session_id", "prompt_cache_key", "user",
                 "previous_response_id", "messages"):  # fmt: skip
        found.append(find_keys({}, body, everything))
        del body[name]
    found.append(find_keys({}, body, everything))
    assert [keys.source for keys in found] == [
        "header", "body", "body", "prompt_cache_key", "user", "previous_response_id", "derived",
        "none",
    ]  # fmt: skip
    assert len({keys.key for keys in found}) == len(found)


def test_header_and_body_name_the_same_session():  # A1
    keys = {key_of({name: "s"}) for name in RULES.headers}
    keys |= {key_of(body={"session_id": "s"}), key_of(body={"vllm_xargs": {"session_id": "s"}})}
    assert len(keys) == 1


def test_the_user_field_is_no_key_unless_asked_for():  # A1
    assert "user" not in DEFAULT_SOURCES
    assert key_of(body={"user": "u"}) is None


def test_the_list_of_sources_is_configurable():  # A1
    assert key_of({"x-session-id": "s"}, rules=KeyRules(sources=("user",))) is None


def test_a_derived_key_needs_a_second_turn_and_then_stays():  # A1
    answer = {"role": "assistant", "content": "a"}
    system = {"role": "system", "content": "You weave."}
    first = [system, TURN]
    assert key_of(body={"messages": first}) is None
    second = key_of(body={"messages": [*first, answer, TURN]})
    assert second is not None
    assert second == key_of(body={"messages": [*first, answer, TURN, answer, {**TURN}]})
    assert second != key_of(body={"messages": [*first, answer, TURN], "tools": [{"a": 1}]})
    assert second != key_of(body={"messages": [system, {**TURN, "content": "x"}, answer, TURN]})


def test_values_are_trimmed_and_match_exactly():  # A2
    assert key_of({"x-session-id": " session-1 "}) == key_of({"x-session-id": "session-1"})
    assert key_of({"x-session-id": "session-1"}) != key_of({"x-session-id": "session-12"})


@pytest.mark.parametrize("value", ["", "  ", "x" * 257, 7, None, ["s"], {"a": 1}])
def test_unusable_values_are_passed_over(value):  # A2
    assert key_of(body={"session_id": value, "prompt_cache_key": "p"}) == key_of(
        body={"prompt_cache_key": "p"}
    )


@pytest.mark.parametrize("body", [{"messages": 3}, {"messages": ["x"]}, {"session_params": 1}, {}])
def test_no_body_is_an_error(body):  # A2
    assert key_of(body=body) is None


def test_credentials_and_addresses_are_no_keys():  # A2
    headers = {"authorization": "Bearer x", "cookie": "a=b", "x-forwarded-for": "10.0.0.1"}
    assert key_of(headers) is None


def test_namespaces_part_equal_names():  # T30
    assert key_of({"x-session-id": "s"}, namespace="a") != key_of({"x-session-id": "s"})


def test_a_key_is_a_hash_of_64_bits_whatever_was_sent():  # A3
    key = key_of({"x-session-id": "secret"})
    assert 0 <= key < 1 << 64
    assert "secret" not in repr(find_keys({"x-session-id": "secret"}, None, RULES))


def test_the_hash_is_the_same_in_every_process():  # A5
    code = "from treadle.router.keys import hash_key; print(hash_key('n', 'session', b's'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) == hash_key("n", "session", b"s")


def test_fields_of_a_hash_are_separated():
    assert hash_key("a", "bc", b"") != hash_key("ab", "c", b"")


def test_the_header_alone_decides_and_beats_the_body():  # A4
    headers = {"x-session-id": "h", "x-parent-session-id": "p"}
    keys = header_keys(headers, RULES)
    assert keys.source == "header"
    assert keys == find_keys(headers, {"session_id": "b", "parent_session_id": "q"}, RULES)


def test_a_parent_is_named_by_header_or_body():
    by_header = find_keys({"x-parent-session-id": "p"}, None, RULES).parent
    assert by_header == key_of({"x-session-id": "p"})
    assert find_keys({}, {"parent_session_id": "p"}, RULES).parent == by_header


def test_a_conversation_too_deep_to_be_written_has_no_key():
    deep: object = 0
    for _ in range(300):
        deep = [deep]
    turns = [{"role": "user", "content": deep}, {"role": "assistant", "content": "a"}]
    assert key_of(body={"messages": turns}) is None
