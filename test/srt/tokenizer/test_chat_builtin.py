"""The exact text of the built-in templates."""

from __future__ import annotations

import pytest

from treadle.srt.errors import BadRequest
from treadle.srt.tokenizer.chat import ChatTemplate
from treadle.srt.tokenizer.chat_builtin import BUILT_IN

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "Bye"},
]


def render(name: str, messages: list[dict[str, str]]) -> str:
    template = ChatTemplate(BUILT_IN[name], name=name, tokens={"bos_token": "<bos>"})
    return template.render(messages, add_generation_prompt=True, continue_final_message=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            "<bos><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "gemma",
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nYo<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
            "<start_of_turn>model\n",
        ),
        (
            "llama3",
            "<bos><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
)
def test_conversation_text_is_exact(name: str, expected: str):
    assert render(name, TALK) == expected


def test_gemma_speaks_a_lone_system_message_as_the_user():
    assert render("gemma", TALK[:1]) == (
        "<bos><start_of_turn>user\nBe brief.<end_of_turn>\n<start_of_turn>model\n"
    )


def test_gemma_refuses_a_late_system_message_and_unknown_roles():
    with pytest.raises(BadRequest, match="before the first turn"):
        render("gemma", [*TALK, TALK[0]])
    with pytest.raises(BadRequest, match="role robot is not known"):
        render("gemma", [{"role": "robot", "content": "x"}])
