"""The grammar of an answer that has to call tools, in the way the model writes calls.

    [reasoning] opening call (between call)* closing         call = one of the tools, its arguments
                                                             under the tool's JSON schema

Owns what each dialect looks like when it is generated; `parse/` reads more than is written here.
Marks that are special tokens of the model stand as ids, since no text becomes them. In DSML and in
Python calls the properties come in the schema's order; of a text parameter in DSML only `enum` and
`const` are held to, for such a value is no JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import BadRequest
from ..grammar.compile import from_lark, lark_json
from ..parse.tools_deepseek import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, SEPARATOR
from ..parse.tools_dsml import MARK
from ..plain_json import plain_json
from ..token_masks import Grammar
from .chat_output import OutputRules
from .schema import Tool
from .tool_use import ToolUse

Schema = Mapping[str, object]
Rules = list[str]  # lines of Lark


@dataclass(frozen=True, slots=True)
class Speller:
    """Texts as Lark terms; `special` are texts of special tokens by their ids.

    Line breaks are terms of their own: the compiler takes the longest term that fits and never goes
    back, so it could not tell a line break from the beginning of one and a tag.
    """

    special: Mapping[str, int]

    def __call__(self, text: str) -> str:
        parts = re.split("(" + "|".join(map(re.escape, (*self.special, "\n"))) + ")", text)
        return " ".join(
            f"<[{self.special[part]}]>" if part in self.special else plain_json(part)
            for part in parts
            if part
        )

    def up_to(self, rule: str, end: str) -> Rules:
        """`rule`: any text that does not hold `end`, and `end`."""
        for text, token_id in self.special.items():
            before, mark, after = end.partition(text)
            if mark:  # the special token ends the text, which may be empty
                chars = f"/(?s:.*){_escaped(before)}/" if before else "/(?s:.+)/"
                begin = f"{rule}_text" if before else f"{rule}_text?"
                tail = f" {self(after)}" if after else ""
                return [f"{rule}: {begin} <[{token_id}]>{tail}", f"{rule}_text: {_regex(chars)}"]
        return [f"{rule}[lazy]: {_regex(f'/(?s:.*){_escaped(end)}/')}"]


@dataclass(frozen=True, slots=True)
class Form:
    """`call(i, tool)` are the rules of tool i, the first of which is `call_i`."""

    opening: str
    between: str
    closing: str
    call: Callable[[int, Tool, Speller], Rules]


def tool_grammar(rules: OutputRules, tools: ToolUse, special: Mapping[str, int]) -> Grammar:
    """For forced calls; `rules` are those after the prompt. Raises BadRequest for a tool that the
    dialect cannot call.
    """
    assert rules.dialect is not None
    form, spell = FORMS[rules.dialect.name], Speller(special)
    chosen = [tool for tool in tools.tools if tools.named in (None, tool.function.name)]
    reasoning, lines = _reasoning(rules, spell)
    more = "" if tools.max_calls == 1 else f" ({_term(spell, form.between)} call)*"
    parts = (reasoning, _term(spell, form.opening), f"call{more}", _term(spell, form.closing))
    lines = [f"start: {' '.join(part for part in parts if part)}", *lines]
    lines.append("call: " + " | ".join(f"call_{i}" for i in range(len(chosen))))
    for i, tool in enumerate(chosen):
        lines += form.call(i, tool, spell)
    return from_lark("\n".join(lines))


def _reasoning(rules: OutputRules, spell: Speller) -> tuple[str, Rules]:
    """The term before the calls, and its rules."""
    form = rules.reasoning
    if form is None or rules.is_open is False:
        return "", []
    lines = spell.up_to("reasoned", form.end)
    space = " " + spell("\n\n") if form.trims_lines else ""
    if rules.is_open or form.is_forced:
        return f"reasoned{space}", lines
    return f"({spell(form.begin)} reasoned{space})?", lines


def _json_call(before: str, arguments: str, after: str) -> Callable[[int, Tool, Speller], Rules]:
    """A JSON object between two texts."""

    def call(i: int, tool: Tool, spell: Speller) -> Rules:
        head = f'{{"name": {json.dumps(tool.function.name)}, "{arguments}": '
        return [
            f"call_{i}: {spell(before + head)} arguments_{i} {spell('}' + after)}",
            f"arguments_{i}: {lark_json(_schema(tool))}",
        ]

    return call


def _deepseek_call(before: str, after: str) -> Callable[[int, Tool, Speller], Rules]:
    """The arguments alone; `{}` of `before` is the name."""

    def call(i: int, tool: Tool, spell: Speller) -> Rules:
        head = before.replace("{}", tool.function.name)
        return [
            f"call_{i}: {spell(head)} arguments_{i} {spell(after)}",
            f"arguments_{i}: {lark_json(_schema(tool))}",
        ]

    return call


def _python_call(i: int, tool: Tool, spell: Speller) -> Rules:
    schema = _schema(tool)
    lines, terms = [], []
    for j, (name, value, is_required) in enumerate(_properties(schema)):
        if not name.isidentifier():
            raise BadRequest(
                f"the tool {tool.function.name!r} cannot be forced: in Python calls an argument "
                f"cannot be called {name!r}",
                param="tools",
            )
        lines += [
            f"p_{i}_{j}: {plain_json(name + '=')} v_{i}_{j}",
            f"v_{i}_{j}: {lark_json(_within(schema, value))}",
        ]
        terms.append((f"p_{i}_{j}", is_required))
    listed, more = _listed(f"a_{i}", terms, plain_json(", "))
    return [
        f"call_{i}: {plain_json(tool.function.name + '(')} {listed} {plain_json(')')}",
        *more,
        *lines,
    ]


def _dsml_call(gap: str) -> Callable[[int, Tool, Speller], Rules]:
    def call(i: int, tool: Tool, spell: Speller) -> Rules:
        schema = _schema(tool)
        lines: Rules = []
        terms: list[tuple[str, bool]] = []
        for j, (name, value, is_required) in enumerate(_properties(schema)):
            lines += _parameter(f"p_{i}_{j}", name, _within(schema, value), gap, spell)
            terms.append((f"p_{i}_{j}", is_required))
        listed, more = _listed(f"a_{i}", terms, spell("\n"))
        head = spell(f'<{MARK}{gap}invoke name="{tool.function.name}">\n')
        tail = spell(f"\n</{MARK}{gap}invoke>")
        return [f"call_{i}: {head} {listed} {tail}", *more, *lines]

    return call


def _parameter(rule: str, name: str, value: Schema, gap: str, spell: Speller) -> Rules:
    is_text = value.get("type") == "string"
    head = f'<{MARK}{gap}parameter name="{name}" string="{"true" if is_text else "false"}">'
    end = f"</{MARK}{gap}parameter>"
    choices = [value["const"]] if "const" in value else value.get("enum")
    if is_text and isinstance(choices, list):
        texts = " | ".join(plain_json(str(choice)) for choice in choices)
        return [f"{rule}: {spell(head)} ({texts}) {spell(end)}"]
    if is_text:
        return [f"{rule}: {spell(head)} {rule}_end", *spell.up_to(f"{rule}_end", end)]
    return [
        f"{rule}: {spell(head)} {rule}_json {spell(end)}",
        f"{rule}_json: {lark_json(value)}",
    ]


def _listed(rule: str, terms: Sequence[tuple[str, bool]], between: str) -> tuple[str, Rules]:
    """Terms in their order, the optional ones of them or not: a term (perhaps empty) and rules.

    `rule_k` is what may follow when something stands before term k, `rule_k_first` when nothing.
    """
    if not terms:
        return "", []
    lines = []
    for k, (term, is_required) in enumerate(terms):
        is_last = k + 1 == len(terms)
        then = "" if is_last else f" {rule}_{k + 1}"
        skip_first = "" if is_required else (' | ""' if is_last else f" | {rule}_{k + 1}_first")
        skip = "" if is_required else (' | ""' if is_last else f" | {rule}_{k + 1}")
        lines.append(f"{rule}_{k}_first: {term}{then}{skip_first}")
        if k:
            lines.append(f"{rule}_{k}: {between} {term}{then}{skip}")
    return f"{rule}_0_first", lines


def _schema(tool: Tool) -> Schema:
    """Of the arguments: an object that holds nothing but what is described, unless it says so."""
    schema: dict[str, object] = {"type": "object", **(tool.function.parameters or {})}
    if "additionalProperties" not in schema and not _COMBINED & schema.keys():
        schema["additionalProperties"] = False
    return schema


_COMBINED = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "unevaluatedProperties"}


def _properties(schema: Schema) -> Iterable[tuple[str, Schema, bool]]:
    properties, required = schema.get("properties"), schema.get("required")
    names = required if isinstance(required, list) else []
    for name, value in (properties if isinstance(properties, Mapping) else {}).items():
        yield name, value if isinstance(value, Mapping) else {}, name in names


def _within(schema: Schema, value: Schema) -> Schema:
    """`value` with the definitions that it may refer to."""
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**value, **shared}


def _term(spell: Speller, text: str) -> str:
    return spell(text) if text else ""


def _escaped(text: str) -> str:
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)


def _regex(regex: str) -> str:
    """`/` ends a regular expression in Lark."""
    return "/" + regex[1:-1].replace("/", "\\/").replace("\n", "\\n") + "/"


def _dsml(block: str, gap: str) -> Form:
    return Form(f"\n\n<{MARK}{gap}{block}>\n", "\n", f"\n</{MARK}{gap}{block}>", _dsml_call(gap))


FORMS = {
    "hermes": Form("", "\n", "", _json_call("<tool_call>\n", "arguments", "\n</tool_call>")),
    "llama3": Form("", "; ", "", _json_call("", "parameters", "")),
    "pythonic": Form("[", ", ", "]", _python_call),
    "deepseekv3": Form(
        CALLS_BEGIN,
        "\n",
        CALLS_END,
        _deepseek_call(f"{CALL_BEGIN}function{SEPARATOR}{{}}\n```json\n", f"\n```{CALL_END}"),
    ),
    "deepseekv31": Form(
        CALLS_BEGIN, "", CALLS_END, _deepseek_call(f"{CALL_BEGIN}{{}}{SEPARATOR}", CALL_END)
    ),
    "deepseekv32": _dsml("function_calls", ""),
    "deepseekv4": _dsml("tool_calls", ""),
    "deepseekv41": _dsml("calls", " "),
}
