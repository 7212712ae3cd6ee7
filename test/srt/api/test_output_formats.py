"""Which parsers a server uses."""

from __future__ import annotations

import pytest

from test.serving import EOS, byte_tokenizer
from treadle.srt.api.output_formats import OutputFormats, find_formats
from treadle.srt.config import ModelSection
from treadle.srt.errors import ConfigError
from treadle.srt.tokenizer.chat import ChatTemplate

PLAIN = "{{ messages[0].content }}"
LLAMA = "{{ messages[0].content }}{{ tools }}<|python_tag|>"


def formats(section: ModelSection, source: str = LLAMA) -> OutputFormats:
    template = ChatTemplate(source, name="t", tokens={})
    return find_formats(section, "llama", template, byte_tokenizer())


def test_without_flags_calls_are_the_models_and_reasoning_is_left_alone():
    found = formats(ModelSection())
    assert found.dialect.name == "llama3"
    assert found.reasoning is None
    assert not found.has_tool_parser


def test_flags_choose():
    found = formats(ModelSection(tool_call_parser="qwen25", reasoning_parser="deepseek_r1"))
    assert found.dialect.name == "hermes"
    assert found.has_tool_parser
    assert found.reasoning is not None
    assert found.reasoning.name == "deepseek-r1"


def test_a_template_that_does_not_know_tools_means_hermes():
    assert formats(ModelSection(tool_call_parser="pythonic"), PLAIN).dialect.name == "hermes"


def test_special_tokens_within_marks_are_shown_and_no_others():
    assert formats(ModelSection()).shown_ids == frozenset()
    template = ChatTemplate(LLAMA, name="t", tokens={})
    section = ModelSection(tool_call_parser="hermes")

    class Marked:
        special_ids = frozenset({7, EOS})

        def token_text(self, token_id: int) -> str:
            return "<tool_call>" if token_id == 7 else "<eos>"

    found = find_formats(section, "llama", template, Marked())  # type: ignore[arg-type]
    assert found.shown_ids == {7}


@pytest.mark.parametrize(
    ("section", "flag"),
    [
        (ModelSection(tool_call_parser="nonsense"), "--tool-call-parser"),
        (ModelSection(reasoning_parser="nonsense"), "--reasoning-parser"),
    ],
)
def test_unknown_names_end_the_launch(section: ModelSection, flag: str):
    with pytest.raises(ConfigError, match=f"{flag} nonsense"):
        formats(section)
