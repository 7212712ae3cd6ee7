"""Grammars of every kind compile, and what does not is a `BadRequest` in the compiler's words."""

from __future__ import annotations

import json
import time

import pytest

from treadle.srt.errors import BadRequest
from treadle.srt.grammar.compile import (
    MAX_BYTES,
    check,
    from_choices,
    from_json_schema,
    from_lark,
    json_object,
    lark_json,
)
from treadle.srt.token_masks import Grammar, GrammarKind

REGEX, EBNF, LARK = GrammarKind.REGEX, GrammarKind.EBNF, GrammarKind.LARK
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    "grammar",
    [
        json_object(),
        from_json_schema(PERSON),
        from_json_schema(True),
        from_choices(["yes", "no", 'quo"te', "b\\s", "/", "é\n"]),
        Grammar(REGEX, r"[0-9]{3}-(a|b/)\d*"),
        Grammar(EBNF, 'root ::= "a" [0-9]+ ws\nws ::= [ \\t]*'),
        Grammar(EBNF, 'root ::= item ("," item){0,5}\nitem ::= "x" | "(" root ")"'),
        Grammar(EBNF, 'start: "lark" /[a-z]+/'),
        from_lark('start: "<tool_call>" call "</tool_call>"\ncall: ' + lark_json(PERSON)),
        from_lark("start: <|some_special|> x\nx: " + lark_json({"x-guidance": {"lenient": True}})),
    ],
)
def test_good_grammars_pass(grammar):
    check(grammar)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (from_json_schema({"type": "strin"}), "invalid json_schema: Invalid type: strin"),
        (from_json_schema({"$ref": "#/$defs/x"}), "Pointer '/$defs/x' does not exist"),
        (from_json_schema({"not": {}}), "Unimplemented keys"),
        (from_json_schema({"$ref": "http://h/x"}), "does not fetch"),
        (from_json_schema({"type": "string", "pattern": "("}), "unclosed group"),
        (from_json_schema([1]), "must be an object or true"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"type"'), "no JSON"),
        (Grammar(REGEX, "(a"), "unclosed group"),
        (Grammar(REGEX, "(?=a)b"), "look-around"),
        (Grammar(REGEX, "\ud800"), "surrogate"),
        (Grammar(EBNF, 'root ::= "a" missing'), "'missing' not found"),
        (Grammar(EBNF, ""), "No 'root' rule"),
        (Grammar(EBNF, 'root ::= "a'), "invalid ebnf"),
        (from_choices([]), "there are no choices"),
        (from_lark("start: nothing"), "invalid lark"),
        (from_lark("start: x\nx: " + lark_json({"type": "objectt"})), "Invalid type: objectt"),
    ],
)
def test_bad_grammars_are_refused_in_the_words_of_the_compiler(grammar, words):
    with pytest.raises(BadRequest, match="^invalid ") as caught:
        check(grammar)
    assert words in caught.value.message
    assert caught.value.param == grammar.kind
    assert len(caught.value.message) < 1100


def _nested(depth: int) -> str:
    return '{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(REGEX, "a" * (MAX_BYTES[REGEX] + 1)),
        Grammar(EBNF, "root ::= " + "(" * 60_000),
        Grammar(GrammarKind.JSON_SCHEMA, _nested(1000)),
        from_json_schema({"properties": {f"p{i}": {"enum": [str(i)] * 9} for i in range(4000)}}),
        from_json_schema(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"{i}-{k}": {}}} for i in range(9)]}
                    for k in "abcdef"
                ]
            }
        ),
    ],
)
def test_a_grammar_bomb_is_refused_in_little_time(grammar):
    start = time.process_time()
    with pytest.raises(BadRequest):
        check(grammar)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(REGEX, "a{1,1000000}"),
        Grammar(REGEX, "(a*)*b(((x{1,1000}){1,1000}){1,1000})"),
        from_json_schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        from_json_schema({"type": "array", "items": {"$ref": "#"}, "minItems": 10**6}),
        from_lark('start: a\na: a a | "x" | '),
    ],
)
def test_grammars_that_look_like_bombs_cost_little(grammar):
    start = time.process_time()
    check(grammar)
    assert time.process_time() - start < 5


def test_spacing_of_tool_json_may_be_overridden_by_the_schema():
    text = lark_json({"type": "object", "x-guidance": {"item_separator": ","}})
    spacing = json.loads(text.removeprefix("%json "))["x-guidance"]
    assert spacing == {"whitespace_flexible": False, "item_separator": ",", "key_separator": ": "}
