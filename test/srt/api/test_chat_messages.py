"""Messages as templates will read them."""

from __future__ import annotations

import msgspec
import pytest

from treadle.srt.api.chat_messages import read_messages
from treadle.srt.api.schema import ChatMessage
from treadle.srt.errors import BadRequest
from treadle.srt.tokenizer.conversation import Conversation


def read(*messages: dict[str, object], **options: bool) -> Conversation:
    return read_messages(
        [msgspec.convert(message, ChatMessage) for message in messages],
        continue_final=options.get("continue_final"),
        add_prompt=options.get("add_prompt"),
        extra=None,
    )


def test_parts_stay_apart_as_joining_them_is_the_models():
    parts = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    conversation = read({"role": "user", "content": parts})
    assert conversation.messages[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert conversation.num_chars == 2


def test_calls_in_the_history_are_passed_on():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    conversation = read(
        {"role": "user", "content": "u"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c"},
    )
    assert conversation.messages[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert conversation.messages[2]["tool_call_id"] == "c"


@pytest.mark.parametrize(
    ("options", "adds", "continues"),
    [
        ({}, True, False),
        ({"add_prompt": False}, False, False),
        ({"continue_final": True}, False, True),
        ({"continue_final": True, "add_prompt": False}, False, True),
    ],
)
def test_generation_prompt_and_continuation(options: dict[str, bool], adds: bool, continues: bool):
    conversation = read({"role": "assistant", "content": "x"}, **options)
    assert conversation.add_generation_prompt is adds
    assert conversation.continue_final_message is continues


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url", "file"])
def test_media_is_refused_by_name(kind: str):
    with pytest.raises(BadRequest, match="takes text only"):
        read({"role": "user", "content": [{"type": kind}]})
