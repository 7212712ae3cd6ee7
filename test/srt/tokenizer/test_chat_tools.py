"""Tools in words, for templates that do not know them."""

from __future__ import annotations

import json

import pytest

from treadle.srt.tokenizer.chat import ChatTemplate
from treadle.srt.tokenizer.chat_builtin import BUILT_IN
from treadle.srt.tokenizer.chat_tools import introduce, spell_calls

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": "é"}}}


def test_tools_go_to_the_end_of_the_system_message():
    (system, user) = introduce(
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}], [TOOL]
    )
    assert str(system["content"]).startswith("Be kind.\n\n")
    assert json.dumps(TOOL) in str(system["content"])
    assert user == {"role": "user", "content": "hi"}


def test_without_a_system_message_there_is_one():
    messages = introduce([{"role": "user", "content": "hi"}], [TOOL])
    assert [m["role"] for m in messages] == ["system", "user"]


def test_calls_and_results_become_text():
    messages = spell_calls(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]},
            {"role": "tool", "content": "1", "tool_call_id": "c"},
            {"role": "tool", "content": "2", "tool_call_id": "c"},
            {"role": "user", "content": "and?"},
        ]
    )
    call = '<tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call>'
    assert messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": f"I look.\n{call}\n{call}"},
        {
            "role": "user",
            "content": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
            "\nand?",
        },
    ]


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_templates_can_be_given_tools(name: str):
    template = ChatTemplate(BUILT_IN[name], name=name, tokens={"bos_token": "<bos>"})
    assert not template.knows_tools
    text = template.render(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "42", "tool_call_id": "c"},
        ],
        add_generation_prompt=True,
        continue_final_message=False,
        tools=[TOOL],
    )
    for words in ("<tools>", json.dumps(TOOL), "<tool_call>\n{", "<tool_response>\n42"):
        assert words in text


def test_a_template_that_knows_tools_gets_them_as_they_are():
    source = "{{ tools | tojson }}{% for m in messages %}{{ m.tool_calls }}{% endfor %}"
    template = ChatTemplate(source, name="t", tokens={})
    assert template.knows_tools
    text = template.render(
        [{"role": "user", "content": "hi"}],
        add_generation_prompt=True,
        continue_final_message=False,
        tools=[TOOL],
    )
    assert text == json.dumps([TOOL])
