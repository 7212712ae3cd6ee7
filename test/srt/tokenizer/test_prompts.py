"""Prompts are encoded, checked, and off the event loop when long."""

from __future__ import annotations

import threading

import pytest

from test.serving import BOS, TEMPLATE, byte_tokenizer
from treadle.srt.errors import BadRequest, TooLong
from treadle.srt.tokenizer import prompts
from treadle.srt.tokenizer.chat import ChatTemplate
from treadle.srt.tokenizer.conversation import Conversation
from treadle.srt.tokenizer.encode import Tokenizer
from treadle.srt.tokenizer.limits import Limits
from treadle.srt.tokenizer.prompts import Prompts

TOKENIZER = byte_tokenizer()
ASKED = Conversation([{"role": "user", "content": "hi"}], num_chars=2)


def make(context_len: int = 50) -> Prompts:
    template = ChatTemplate(TEMPLATE, name="t", tokens=TOKENIZER.role_texts)
    return Prompts(TOKENIZER, template, Limits(context_len, 260))


async def test_text_gets_special_tokens_and_a_conversation_only_the_templates():
    assert (await make().text("hi", "p")).tolist() == [BOS, 104, 105]
    assert (await make().text("hi", "p", add_special=False)).tolist() == [104, 105]
    ids = (await make().chat(ASKED, "m")).tolist()
    assert ids.count(BOS) == 1
    assert bytes(ids[1:]) == b"user:hi|assistant:"


async def test_lengths_are_checked():
    with pytest.raises(TooLong):
        await make(context_len=5).chat(ASKED, "m")
    with pytest.raises(BadRequest, match="must not be empty"):
        await make().text("", "p", add_special=False)


async def test_text_beyond_any_context_is_refused_without_encoding_it(
    monkeypatch: pytest.MonkeyPatch,
):
    def encode(self: Tokenizer, text: str, *, add_special: bool) -> list[int]:
        raise AssertionError("this takes seconds and gigabytes")

    monkeypatch.setattr(Tokenizer, "encode", encode)
    num_chars = 50 * 4 * TOKENIZER.longest_piece
    with pytest.raises(TooLong, match="50 tokens or more.*context length is 50"):
        await make().text("x" * num_chars, "p")
    with pytest.raises(TooLong, match="context length"):
        await make().chat(Conversation([], num_chars=num_chars), "m")
    with pytest.raises(AssertionError):
        await make().text("x" * (num_chars - 1), "p")


async def test_model_without_template_refuses_chats():
    bare = Prompts(TOKENIZER, None, Limits(50, 260))
    with pytest.raises(BadRequest, match="--chat-template"):
        await bare.chat(ASKED, "m")


async def test_long_texts_are_encoded_off_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    threads: list[bool] = []
    encode = Tokenizer.encode

    def noted(self: Tokenizer, text: str, *, add_special: bool) -> list[int]:
        threads.append(threading.current_thread() is threading.main_thread())
        return encode(self, text, add_special=add_special)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    await make().encode("x" * prompts.INLINE_CHARS, add_special=True)
    await make().encode("x" * (prompts.INLINE_CHARS + 1), add_special=True)
    long = Conversation([{"role": "user", "content": "x" * 5000}], num_chars=5000)
    await make().encode_chat(long)
    assert threads == [True, False, False]


async def test_the_servers_template_arguments_come_before_the_requests():
    template = ChatTemplate("{{ a }}{{ b }}", name="t", tokens=TOKENIZER.role_texts)
    prompts = Prompts(TOKENIZER, template, Limits(50, 260), {"a": "x", "b": "y"})
    asked = Conversation([{"role": "user", "content": "hi"}], num_chars=2, extra={"b": "z"})
    assert bytes((await prompts.chat(asked, "m")).tolist()) == b"xz"
