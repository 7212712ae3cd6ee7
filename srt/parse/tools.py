"""The tool-call dialects: which there are, what other servers call them, and how `auto` chooses.

A dialect is a parser and the markers that it needs to see. Names are those of other servers; `-`
and `_` are the same, as is upper and lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..errors import ConfigError
from .calls import CallParser
from .reasoning import FORMATS, ReasoningFormat
from .tools_deepseek import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, SEPARATOR, DeepSeekParser
from .tools_dsml import MARK, DsmlParser
from .tools_json import HermesParser, Llama3Parser
from .tools_pythonic import PythonicParser

AUTO = "auto"
_DEEPSEEK_MARKS = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR)


@dataclass(frozen=True, slots=True)
class Dialect:
    """`marks`: texts that must reach the parser even when special tokens are hidden."""

    name: str
    parser: Callable[[Collection[str]], CallParser]
    marks: tuple[str, ...]


HERMES = Dialect("hermes", HermesParser, (HermesParser.BEGIN, HermesParser.END))
DIALECTS = {
    dialect.name: dialect
    for dialect in (
        HERMES,
        Dialect("llama3", Llama3Parser, (Llama3Parser.TAG,)),
        Dialect("pythonic", PythonicParser, PythonicParser.TAGS),
        Dialect("deepseekv3", DeepSeekParser, _DEEPSEEK_MARKS),
        Dialect("deepseekv31", DeepSeekParser, _DEEPSEEK_MARKS),
        Dialect("deepseekv32", DsmlParser, (MARK,)),
        Dialect("deepseekv4", DsmlParser, (MARK,)),
        Dialect("deepseekv41", DsmlParser, (MARK,)),
    )
}
_ALIASES = {
    "qwen25": "hermes",
    "qwen": "hermes",
    "qwen3": "hermes",
    "llama3-json": "llama3",
    "llama4-pythonic": "pythonic",
    "deepseek-v3": "deepseekv3",
    "deepseek-v31": "deepseekv31",
    "deepseek-v32": "deepseekv32",
    "deepseek-v4": "deepseekv4",
    "deepseek-v41": "deepseekv41",
}

# What a chat template spells tells its dialect; the first that it contains. Where two texts are
# given, both must be there.
_BY_TEMPLATE: tuple[tuple[tuple[str, ...], str], ...] = (
    ((MARK, "function_calls"), "deepseekv32"),
    ((MARK, "tool_calls>"), "deepseekv4"),
    ((MARK,), "deepseekv41"),
    ((CALL_BEGIN, "```json"), "deepseekv3"),
    ((CALL_BEGIN,), "deepseekv31"),
    (("<tool_call>",), "hermes"),
    (("[func_name1(",), "pythonic"),
    (("<|python_start|>",), "pythonic"),
    (("<|python_tag|>",), "llama3"),
    (('"parameters": dictionary of argument name',), "llama3"),
)
_REASONING_BY_TEMPLATE: tuple[tuple[tuple[str, ...], str], ...] = (
    ((MARK,), "deepseek-v41"),
    (("<think>", "enable_thinking"), "qwen3"),
    (("<think>", "<｜Assistant｜>", "thinking"), "deepseek-v3"),
    (("<think>", "<｜Assistant｜>"), "deepseek-r1"),
    (("</think>", "<｜Assistant｜>"), "deepseek-r1"),
    (("</think>", "<|im_start|>"), "qwen3-thinking"),
)
# For models that come without a template, by `model_type`.
_BY_MODEL = {
    "deepseek_v41": ("deepseekv41", "deepseek-v41"),
    "deepseek_v4": ("deepseekv4", "deepseek-v4"),
}


def find_dialect(name: str, template: str, model_type: str) -> Dialect:
    """The dialect of that name; for `auto` or "" the model's, hermes when nothing tells.
    Raises ConfigError.
    """
    key = _key(name)
    if key in ("", AUTO):
        key = _chosen(_BY_TEMPLATE, template) or _BY_MODEL.get(model_type, ("hermes", ""))[0]
    dialect = DIALECTS.get(_ALIASES.get(key, key))
    if dialect is None:
        known = ", ".join((AUTO, *DIALECTS, *_ALIASES))
        raise ConfigError(f"--tool-call-parser {name}: expected one of {known}")
    return dialect


def find_reasoning(name: str, template: str, model_type: str) -> ReasoningFormat | None:
    """The format of that name; for `auto` the model's, None when it shows none. "" and "none":
    None. Raises ConfigError.
    """
    key = _key(name)
    if key == AUTO:
        key = _chosen(_REASONING_BY_TEMPLATE, template) or _BY_MODEL.get(model_type, ("", ""))[1]
    if key in ("", "none"):
        return None
    form = FORMATS.get(key)
    if form is None:
        known = ", ".join((AUTO, "none", *FORMATS))
        raise ConfigError(f"--reasoning-parser {name}: expected one of {known}")
    return form


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _chosen(table: tuple[tuple[tuple[str, ...], str], ...], template: str) -> str:
    for words, name in table:
        if all(word in template for word in words):
            return name
    return ""
