"""Blocks, whole and as events."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.srt.api.anthropic_blocks import (
    SIGNATURE,
    BlockEvents,
    WholeBlocks,
    stop_members,
    usage_body,
)
from treadle.srt.messages import Usage
from treadle.srt.tokenizer.trail import Ending

Step = tuple[str, tuple[str, ...]]


def events(data: bytes) -> list[dict[str, Any]]:
    """Parsed, each framed as an `event:` line, a `data:` line and an empty one."""
    found = []
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    for part in parts:
        name, body = part.split("\n")
        read = orjson.loads(body.removeprefix("data: "))
        assert name == f"event: {read['type']}"
        found.append(read)
    return found


def replay(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that a client has after the events; checks the rules of their order."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in found:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "_json": ""})
            is_open = True
            continue
        assert is_open
        assert event["index"] == len(blocks) - 1
        if event["type"] == "content_block_stop":
            is_open = False
            continue
        delta, block = event["delta"], blocks[-1]
        names = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "_json",
                 "signature_delta": "signature"}  # fmt: skip
        name = names[delta.pop("type")]
        (piece,) = delta.values()
        block[name] += piece
    assert not is_open
    for block in blocks:
        text = block.pop("_json")
        if block["type"] == "tool_use":
            block["input"] = orjson.loads(text or "{}")
    return blocks


steps = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.tuples(st.text(min_size=1))),
        st.tuples(st.just("thinking"), st.tuples(st.text(min_size=1))),
        st.tuples(st.just("call"), st.tuples(st.just("toolu_1"), st.just("f"))),
        st.tuples(st.just("object"), st.tuples(st.just('{"a":'), st.just(' "\\u00e9"}'))),
    ),
    max_size=12,
)


@given(steps)
def test_events_add_up_to_the_whole_blocks(made: list[Step]):
    stream, whole = BlockEvents(), WholeBlocks()
    data = b""
    for name, values in made:
        if name == "object":
            data += stream.call("toolu_2", "g")
            whole.call("toolu_2", "g")
            for value in values:
                data += stream.arguments(value)
                whole.arguments(value)
        else:
            data += getattr(stream, name)(*values)
            getattr(whole, name)(*values)
    data += stream.close()
    assert replay(events(data)) == whole.content()


def test_thinking_ends_with_a_signature_and_texts_are_joined():
    stream = BlockEvents()
    data = stream.thinking("a") + stream.thinking("b") + stream.text("c") + stream.close()
    kinds = [e.get("delta", {}).get("type", e["type"]) for e in events(data)]
    assert kinds == [
        "content_block_start", "thinking_delta", "thinking_delta", "signature_delta",
        "content_block_stop", "content_block_start", "text_delta", "content_block_stop",
    ]  # fmt: skip
    assert stream.close() == b""
    whole = WholeBlocks()
    whole.thinking("a")
    assert whole.content() == [{"type": "thinking", "thinking": "a", "signature": SIGNATURE}]


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", "7", "nonsense"])
def test_arguments_that_are_no_object_are_given_as_written(text: str):
    whole = WholeBlocks()
    whole.call("toolu_1", "f")
    whole.arguments(text)
    assert whole.content()[0]["input"] == {"invalid_json": text}


@pytest.mark.parametrize(
    ("ending", "reason", "sequence"),
    [
        (Ending("stop", 2), "end_turn", None),
        (Ending("stop"), "end_turn", None),
        (Ending("stop", "END"), "stop_sequence", "END"),
        (Ending("length"), "max_tokens", None),
        (Ending("tool_calls", 2), "tool_use", None),
        (Ending("abort", message="x"), "abort", None),
    ],
)
def test_reasons(ending: Ending, reason: str, sequence: str | None):
    assert stop_members(ending) == {"stop_reason": reason, "stop_sequence": sequence}


def test_cached_tokens_are_beside_the_input_tokens():
    body = usage_body(Usage(10, 3, 8, 2), has_cache_report=True)
    assert body == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 8,
        "output_tokens": 3,
    }
    hidden = usage_body(Usage(10, 3, 8, 2), has_cache_report=False)
    assert (hidden["input_tokens"], hidden["cache_read_input_tokens"]) == (10, 0)
