"""Transcripts: what they accept, and the prompts that are cut from them."""

from __future__ import annotations

import pytest

from treadle.client.errors import ProgramError
from treadle.lang.prompt import ChatPrompt, TextPrompt, Transcript, read_prompt
from treadle.lang.tools import ToolCall


def chat(*turns: tuple[str, str]) -> Transcript:
    transcript = Transcript()
    for role, text in turns:
        transcript.begin(role)
        transcript.append(text)
        transcript.end(role)
    return transcript


def test_a_text_is_its_own_prompt():
    transcript = Transcript()
    transcript.append("1, 2,")
    assert transcript.prompt() == transcript.so_far() == TextPrompt("1, 2,")
    assert transcript.all_messages() == []


def test_an_answer_begins_after_the_messages_and_goes_on_inside():
    transcript = chat(("user", "Hi"))
    transcript.begin("assistant")
    prompt = transcript.prompt()
    assert prompt == ChatPrompt(({"role": "user", "content": "Hi"},), "answer")
    transcript.append("Well,")
    inside = transcript.prompt()
    assert isinstance(inside, ChatPrompt) and inside.end == "inside"
    assert inside.messages[-1] == {"role": "assistant", "content": "Well,"}
    assert inside.body()["continue_final_message"] is True
    assert len(prompt.messages) == 1  # what was cut does not change


def test_reasoning_and_calls_are_members_of_the_message():
    transcript = chat(("user", "Hi"))
    transcript.begin("assistant")
    transcript.take("42", "I think.", [ToolCall("c1", "now", "{}")])
    transcript.end("assistant")
    assert transcript.all_messages()[-1] == {
        "role": "assistant",
        "content": "42",
        "reasoning_content": "I think.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        ],
    }


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda t: t.append("x"), "stands outside of a role"),
        (lambda t: t.end("user"), "role user ends, but none is open"),
        (lambda t: t.prompt(), "belongs in role assistant, not outside of a role"),
        (lambda t: (t.begin("user"), t.begin("user")), "begins inside of role user"),
        (lambda t: (t.begin("user"), t.prompt()), "not inside of role user"),
        (lambda t: (t.begin("user"), t.agent_prompt(())), "end role user first"),
        (lambda t: t.end_scope("a"), "'a' ends, but has not begun"),
    ],
)
def test_misuse_in_a_chat_is_told(act, words):
    with pytest.raises(ProgramError, match=words):
        act(chat(("user", "Hi")))


def test_a_role_after_text_is_refused():
    transcript = Transcript()
    transcript.append("x")
    with pytest.raises(ProgramError, match="comes after text that has no role"):
        transcript.begin("user")


def test_a_copy_goes_its_own_way():
    transcript = chat(("user", "Hi"))
    transcript.begin_scope("all")
    other = transcript.copy()
    other.begin("assistant")
    other.append("A")
    assert other.end_scope("all") == "assistant: A"
    assert transcript.shown == "user: Hi\n" and transcript.end_scope("all") == ""


def test_what_is_shared_never_ends_in_an_empty_answer():
    """No server has a spelling for one."""
    transcript = chat(("user", "Hi"))
    transcript.begin("assistant")
    shared = transcript.so_far()
    assert isinstance(shared, ChatPrompt) and shared.end == "message"
    assert shared.body()["add_generation_prompt"] is False
    assert Transcript().so_far() is None


def test_prompts_survive_json():
    prompt = ChatPrompt(({"role": "user", "content": "Hi"},), "answer", ({"type": "function"},),
                        {"thinking": False})  # fmt: skip
    for each in (prompt, TextPrompt("x")):
        assert read_prompt(each.as_json()) == each
