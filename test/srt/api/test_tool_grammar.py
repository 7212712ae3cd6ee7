"""Forced calls: the grammar of each dialect lets through what its parser reads, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from test.cutting import calls, parse
from treadle.srt.api.chat_output import OutputRules
from treadle.srt.api.schema import Tool
from treadle.srt.api.tool_grammar import FORMS, tool_grammar
from treadle.srt.api.tool_use import ToolUse
from treadle.srt.errors import BadRequest
from treadle.srt.grammar.compile import check, to_llguidance
from treadle.srt.parse.reasoning import FORMATS
from treadle.srt.parse.tools import DIALECTS
from treadle.srt.token_masks import Grammar

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "s": {"type": "string"},
        "u": {"type": "string", "enum": ["C", "F"]},
        "r": {"$ref": "#/$defs/R"},
    },
    "required": ["a", "s"],
    "$defs": {"R": {"type": "array", "items": {"type": "number"}}},
}


def tool(name: str, parameters: dict[str, Any] | None = None) -> Tool:
    function = {"name": name, "parameters": parameters}
    return msgspec.convert({"type": "function", "function": function}, Tool)


TOOLS = (tool("f", SCHEMA), tool("g"))
BOTH = [("f", '{"a": 1, "s": "x", "r": [1, 2.5]}'), ("g", "{}")]
DSML = (
    '\n\n<{m} calls>\n<{m} invoke name="f">\n'
    '<{m} parameter name="a" string="false">1</{m} parameter>\n'
    '<{m} parameter name="s" string="true">{s}</{m} parameter>\n'
    '<{m} parameter name="r" string="false">[1, 2.5]</{m} parameter>\n'
    '</{m} invoke>\n<{m} invoke name="g">\n\n</{m} invoke>\n</{m} calls>'
)
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"


def marked(call: str, between: str) -> str:
    return BEGIN + between.join(call.replace("{}", "%s") % pair for pair in BOTH) + END


def json_calls(call: str, key: str, between: str) -> str:
    objects = (f'{{"name": "{name}", "{key}": {text}}}' for name, text in BOTH)
    return between.join(call % text for text in objects)


def dsml(block: str, gap: str, value: str = "x") -> str:
    text = DSML.replace("{m} calls", "{m} " + block).replace("{m} ", "｜DSML｜" + gap)
    return text.replace("{s}", value)


ANSWERS = {
    "hermes": json_calls("<tool_call>\n%s\n</tool_call>", "arguments", "\n"),
    "llama3": json_calls("%s", "parameters", "; "),
    "pythonic": '[f(a=1, s="x", r=[1, 2.5]), g()]',
    "deepseekv3": marked(V3, "\n"),
    "deepseekv31": marked(V31, ""),
    "deepseekv32": dsml("function_calls", ""),
    "deepseekv4": dsml("tool_calls", ""),
    "deepseekv41": dsml("calls", " "),
}


class Bytes:
    """A vocabulary of bytes, `special` tokens from id 256 on, and an EOS."""

    def __init__(self, special: Sequence[str]) -> None:
        self.special = special
        self.tokens = [bytes([i]) for i in range(256)] + [t.encode() for t in special] + [b"<eos>"]
        self.eos_token_id = len(self.tokens) - 1
        self.bos_token_id = None
        self.special_token_ids = list(range(256, len(self.tokens)))

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)

    def encode(self, text: str) -> Iterator[int]:
        while text:
            for i, special in enumerate(self.special):
                if text.startswith(special):
                    yield 256 + i
                    text = text[len(special) :]
                    break
            else:
                yield from text[0].encode()
                text = text[1:]


def accepts(grammar: Grammar, text: str, special: Sequence[str] = ()) -> bool:
    """The whole of `text`, and that it may end there."""
    vocabulary = Bytes(special)
    wrapper = TokenizerWrapper(vocabulary)
    matcher = LLMatcher(LLTokenizer(wrapper), to_llguidance(grammar), log_level=0)
    ids = list(vocabulary.encode(text))
    if matcher.validate_tokens(ids) < len(ids):
        return False
    matcher.consume_tokens(ids)
    return bool(matcher.is_accepting())


def grammar(
    dialect: str,
    use: ToolUse | None = None,
    special: Sequence[str] = (),
    reasoning: str | None = None,
    is_open: bool | None = None,
) -> Grammar:
    rules = OutputRules(
        reasoning=FORMATS[reasoning] if reasoning else None,
        is_open=is_open,
        dialect=DIALECTS[dialect],
    )
    ids = {text: 256 + i for i, text in enumerate(special)}
    made = tool_grammar(rules, use or ToolUse(TOOLS, "required"), ids)
    check(made)
    return made


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_special", [False, True])
def test_a_forced_answer_is_what_the_parser_reads(dialect: str, is_special: bool):
    special = DIALECTS[dialect].marks if is_special else ()
    made, answer = grammar(dialect, special=special), ANSWERS[dialect]
    assert accepts(made, answer, special)
    assert calls(parse(lambda: DIALECTS[dialect].parser({"f", "g"}), [answer])) == BOTH
    for other in ("", "hello", f"ok {answer}", answer[:-1], answer.replace("2.5", '"2"'),
                  answer.replace("g", "h")):  # fmt: skip
        assert not accepts(made, other, special), other


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_call_and_a_named_tool(dialect: str):
    both = ANSWERS[dialect]
    single = grammar(dialect, ToolUse(TOOLS, "required", max_calls=1))
    assert not accepts(single, both)
    named = grammar(dialect, ToolUse(TOOLS, "required", named="g", max_calls=1))
    assert not accepts(named, both)
    if dialect == "hermes":
        g = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
        assert accepts(single, g)
        assert accepts(named, g)


@pytest.mark.parametrize(
    ("reasoning", "is_open", "before", "accepted"),
    [
        ("qwen3", None, "", True),
        ("qwen3", None, "<think>\nhm </th\n</think>\n\n", True),
        ("qwen3", None, "hm</think>\n\n", False),
        ("qwen3", True, "hm</think>\n\n", True),
        ("qwen3", True, "", False),
        ("qwen3", False, "", True),
        ("deepseek-r1", None, "hm</think>\n\n", True),
        ("deepseek-v41", True, "hm</think>", True),
        ("deepseek-v41", True, "</think>", True),
    ],
)
@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
def test_reasoning_comes_before_the_calls(
    reasoning: str, is_open: bool | None, before: str, accepted: bool, special: tuple[str, ...]
):
    made = grammar("hermes", None, special, reasoning, is_open)
    assert accepts(made, before + ANSWERS["hermes"], special) is accepted


@pytest.mark.parametrize("special", [(), ("｜DSML｜",)])
def test_text_parameters_hold_any_text(special: tuple[str, ...]):
    made = grammar("deepseekv41", special=special)
    assert accepts(made, dsml("calls", " ", 'a "b"\n</div> <\n日本'), special)
    assert accepts(made, dsml("calls", " ", ""), special)


OPTIONAL = {"type": "object", "properties": {k: {"type": "integer"} for k in "abc"}}


@pytest.mark.parametrize("chosen", ["", "a", "b", "c", "ab", "ac", "bc", "abc"])
def test_optional_properties_may_all_be_left_out(chosen: str):
    use = ToolUse((tool("f", OPTIONAL),), "required", max_calls=1)
    arguments = ", ".join(f"{name}=1" for name in chosen)
    assert accepts(grammar("pythonic", use), f"[f({arguments})]")
    lines = "\n".join(
        f'<｜DSML｜ parameter name="{name}" string="false">1</｜DSML｜ parameter>'
        for name in chosen
    )
    answer = (
        '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n' + lines + "\n</｜DSML｜ invoke>\n"
        "</｜DSML｜ calls>"
    )
    assert accepts(grammar("deepseekv41", use), answer)


def test_a_name_that_python_does_not_know_cannot_be_forced_there():
    use = ToolUse((tool("f", {"properties": {"a-b": {"type": "string"}}}),), "required")
    with pytest.raises(BadRequest, match="a-b"):
        grammar("pythonic", use)
    assert grammar("hermes", use)


def test_a_schema_that_does_not_compile_is_refused():
    bad = tool("f", {"type": "object", "properties": {"a": {"type": "nonsense"}}})
    with pytest.raises(BadRequest):
        grammar("hermes", ToolUse((bad,), "required"))


def test_every_dialect_can_be_forced():
    assert FORMS.keys() == DIALECTS.keys()
