"""Anthropic's messages as the messages of a chat."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.srt.api.anthropic_messages import BILLING, MAX_BLOCKS, chat_messages
from treadle.srt.api.anthropic_schema import CountRequest
from treadle.srt.errors import BadRequest

CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sky"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "blue"}


def read(messages: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    body = msgspec.convert({"messages": messages, **fields}, CountRequest)
    found = [msgspec.to_builtins(message) for message in chat_messages(body)]
    return [{k: v for k, v in message.items() if v is not None} for message in found]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(words: str, **extra: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **extra}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [text(words) for words in texts]


def test_system_is_the_first_message():
    hi = {"role": "user", "content": "hi"}
    assert read([hi], system="be kind") == [{"role": "system", "content": "be kind"}, hi]
    blocks = [text("a", cache_control={"type": "ephemeral"}), text("b")]
    assert read([hi], system=blocks)[0] == {"role": "system", "content": parts("a", "b")}
    assert read([hi], system="") == read([hi], system=[]) == [hi]


def test_a_line_of_accounting_is_no_part_of_the_system_text():
    hi = {"role": "user", "content": "hi"}
    one, other = (
        read([hi], system=[text(f"{BILLING} v=1; hash={x}"), text("be kind")]) for x in "ab"
    )
    assert one == other == [{"role": "system", "content": "be kind"}, hi]


def test_tool_round_trip_keeps_ids_names_and_order():
    messages = read(
        [
            {"role": "user", "content": "colour?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"}, text("I look."), CALL]},
            user(RESULT, text("and now?")),
        ]
    )  # fmt: skip
    function = {"name": "look", "arguments": {"at": "sky"}}
    assert messages == [
        {"role": "user", "content": "colour?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "blue", "tool_call_id": "t1", "name": "look"},
        {"role": "user", "content": "and now?"},
    ]


def test_results_stay_apart_and_say_when_they_are_errors():
    second = {**RESULT, "tool_use_id": "t2", "content": [text("a"), text("b")], "is_error": True}
    empty = {"type": "tool_result", "tool_use_id": "t3"}
    found = read([user(RESULT, second, empty)])
    assert [m["content"] for m in found] == ["blue", parts("Error: a", "b"), ""]
    assert [m["tool_call_id"] for m in found] == ["t1", "t2", "t3"]


def test_an_error_without_words_is_an_error_still():
    (found,) = read([user({**RESULT, "content": [], "is_error": True})])
    assert found["content"] == "Error: "


def test_neighbours_of_one_role_are_one_message():
    found = read(
        [
            {"role": "user", "content": "a"},
            user(text("b"), text("c")),
            {"role": "assistant", "content": "d"},
            {"role": "assistant", "content": [text("e")]},
        ]
    )
    assert found == [
        {"role": "user", "content": parts("a", "b", "c")},
        {"role": "assistant", "content": parts("d", "e")},
    ]


def test_redacted_thinking_is_left_out():
    found = read(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
            {"role": "user", "content": "b"},
        ]
    )
    assert found[1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([], "messages", "must not be empty"),
        ([user()], "messages[0].content", "must not be empty"),
        ([{"role": "user", "content": ""}], "messages[0].content", "must not be empty"),
        ([{"role": "tool", "content": "a"}], "messages[0].role", "user, assistant, system"),
        ([user(text("a"), {"type": "image", "source": {}})], "messages[0].content[1].type",
         "text only"),
        ([user({**RESULT, "content": [{"type": "image"}]})],
         "messages[0].content[0].content[0].type", "text only"),
        ([user(CALL)], "messages[0].content[0].type", "'tool_use' does not belong"),
        ([{"role": "assistant", "content": [RESULT]}], "messages[0].content[0].type",
         "'tool_result' does not belong"),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": [CALL]}], "messages",
         "no tool_result"),
        ([user(*[text("")] * (MAX_BLOCKS + 1))], "messages", f"at most {MAX_BLOCKS}"),
    ],
)  # fmt: skip
def test_bad_messages_are_named(messages: list[dict[str, Any]], param: str, words: str):
    with pytest.raises(BadRequest, match=words) as refused:
        read(messages)
    assert refused.value.param == param
