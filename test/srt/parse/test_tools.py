"""The table of dialects and formats, and what `auto` makes of a template."""

from __future__ import annotations

import pytest

from treadle.srt.errors import ConfigError
from treadle.srt.parse.reasoning import FORMATS
from treadle.srt.parse.tools import DIALECTS, find_dialect, find_reasoning

V3 = "<｜tool▁call▁begin｜>"


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("hermes", "hermes"),
        ("qwen25", "hermes"),
        ("qwen", "hermes"),
        ("llama3", "llama3"),
        ("llama3_json", "llama3"),
        ("pythonic", "pythonic"),
        ("DeepSeek_V3", "deepseekv3"),
        ("deepseekv31", "deepseekv31"),
        ("deepseek-v32", "deepseekv32"),
        ("deepseekv4", "deepseekv4"),
        ("deepseekv41", "deepseekv41"),
    ],
)
def test_names_of_other_servers_with_either_separator(name: str, dialect: str):
    assert find_dialect(name, "", "").name == dialect


@pytest.mark.parametrize("name", FORMATS)
def test_reasoning_names_with_either_separator(name: str):
    for spelling in (name, name.replace("-", "_"), name.upper()):
        found = find_reasoning(spelling, "", "")
        assert found is not None
        assert found.name == name


@pytest.mark.parametrize(
    ("template", "model_type", "dialect", "reasoning"),
    [
        ("", "llama", "hermes", None),
        ("", "deepseek_v41", "deepseekv41", "deepseek-v41"),
        ("<tool_call> <|im_start|>", "qwen2", "hermes", None),
        ("<tool_call> <|im_start|> <think> </think> enable_thinking", "qwen3", "hermes", "qwen3"),
        ("<tool_call> <|im_start|> </think>", "qwen3", "hermes", "qwen3-thinking"),
        ("<|python_tag|>", "llama", "llama3", None),
        ("[func_name1(a=1)]", "llama4", "pythonic", None),
        (f"{V3} ```json <｜Assistant｜> </think>", "deepseek_v3", "deepseekv3", "deepseek-r1"),
        (f"{V3} <｜Assistant｜> <think> thinking", "deepseek_v3", "deepseekv31", "deepseek-v3"),
        ("<｜DSML｜function_calls> ｜DSML｜", "deepseek_v32", "deepseekv32", "deepseek-v41"),
    ],
)
def test_auto(template: str, model_type: str, dialect: str, reasoning: str | None):
    assert find_dialect("auto", template, model_type).name == dialect
    found = find_reasoning("auto", template, model_type)
    assert (found.name if found else None) == reasoning


def test_no_reasoning_parser_unless_asked():
    assert find_reasoning("", "<think> enable_thinking", "qwen3") is None


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="auto, hermes"):
        find_dialect("mistral", "", "")
    with pytest.raises(ConfigError, match="deepseek-r1"):
        find_reasoning("kimi", "", "")


def test_every_dialect_names_itself():
    assert all(name == dialect.name for name, dialect in DIALECTS.items())
