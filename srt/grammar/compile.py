"""A `Grammar` -> what llguidance compiles, and the check that every grammar of a client must pass.

Owns the translation of each kind, the sizes allowed, and the limits of compiling and of one mask.
Knows no vocabulary: `mask.py` does.

JSON is written with ", " and ": " and no other white space, as most models write it: a model cannot
then fill an answer with blanks, and everything between two values is forced. A schema may say
otherwise under "x-guidance" (llguidance's own key).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import any_to_lark

from ..errors import BadRequest
from ..token_masks import Grammar, GrammarKind

if TYPE_CHECKING:  # in the stub only
    from llguidance._lib import JsonCompileOptions

MAX_BYTES = {
    GrammarKind.JSON_SCHEMA: 256 << 10,
    GrammarKind.REGEX: 16 << 10,
    GrammarKind.EBNF: 64 << 10,
    GrammarKind.CHOICE: 64 << 10,
    GrammarKind.LARK: 1 << 20,  # ours, with the schemas of many tools in it
}
MAX_ERROR_CHARS = 1000  # of the compiler's message: it may quote the whole grammar
SPACING: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


def limits() -> LLParserLimits:
    """About 20 ms to compile (after parsing the text), 20 ms and 250 MB for the masks of a request:
    llguidance's units are 50,000 of lexer fuel and 20,000 items per ms.
    """
    return LLParserLimits(
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=100_000,
        max_grammar_size=500_000,
        verbose_errors=False,
    )


def from_json_schema(schema: object) -> Grammar:
    """`schema` is a decoded JSON value. Raises: BadRequest for what JSON cannot hold."""
    try:
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema, ensure_ascii=False))
    except (ValueError, RecursionError) as e:
        raise BadRequest(f"the JSON schema cannot be written: {e}") from None


def json_object() -> Grammar:
    """Any JSON object."""
    return from_json_schema({"type": "object"})


def from_choices(choices: Sequence[str]) -> Grammar:
    return Grammar(GrammarKind.CHOICE, orjson.dumps(list(choices)).decode())


def from_lark(text: str) -> Grammar:
    return Grammar(GrammarKind.LARK, text)


def lark_json(schema: Mapping[str, object] | bool) -> str:
    """A Lark term for JSON under `schema`, with our spacing: for `start: "<tool_call>" x` and
    `x: ` + this. A rule holds nothing else beside it."""
    if isinstance(schema, bool):
        return f"%json {json.dumps(schema)}"
    own = schema.get("x-guidance")
    spacing = {**SPACING, **(own if isinstance(own, Mapping) else {})}
    return f"%json {json.dumps({**schema, 'x-guidance': spacing}, ensure_ascii=False)}"


def after_free_text(grammar: Grammar, close: str, close_id: int | None) -> Grammar:
    """Any text up to the first `close`, then `grammar`: for reasoning before an answer. `close_id`:
    the special token that `close` is, if it is one, for such are no text."""
    if close_id is not None:
        prelude = f"start: free <[{close_id}]> @answer\nfree: /(?s:.*)/"
    else:
        pattern = re.escape(close).replace("/", r"\/").replace("\n", "n")
        prelude = f"start: free @answer\nfree[lazy]: /(?s:.*){pattern}/"
    return replace(grammar, prelude=prelude)


def check(grammar: Grammar) -> None:
    """Compiles it without a vocabulary: for any thread, takes milliseconds and lets others run.

    Raises: BadRequest with the compiler's message, or for a grammar that is too large.
    """
    text = to_llguidance(grammar)
    is_error, messages = LLMatcher.validate_grammar_with_warnings(text, limits=limits())
    if is_error:
        raise refusal(grammar.kind, messages[0])


def to_llguidance(grammar: Grammar) -> str:
    """llguidance's own form. Raises: BadRequest for text that has no such form."""
    text = _own_form(grammar)
    if not grammar.prelude:
        return text
    inner = orjson.loads(text)["grammars"][0] if text.startswith("{") else {"lark_grammar": text}
    outer = {"lark_grammar": grammar.prelude}
    return orjson.dumps({"grammars": [outer, {**inner, "name": "answer"}]}).decode()


def _own_form(grammar: Grammar) -> str:
    text, kind = grammar.text, grammar.kind
    _check_size(text, kind)
    if kind is GrammarKind.JSON_SCHEMA:
        return _json_grammar(text)
    if kind is GrammarKind.REGEX:
        return LLMatcher.grammar_from_regex(text)
    if kind is GrammarKind.CHOICE:
        return LLMatcher.grammar_from_lark(_choice_lark(text))
    if kind is GrammarKind.EBNF:
        return LLMatcher.grammar_from_lark(_ebnf_lark(text))
    return LLMatcher.grammar_from_lark(text)


def refusal(kind: GrammarKind, message: str) -> BadRequest:
    """The reply to a grammar that the compiler refuses."""
    text = message.strip()
    if len(text) > MAX_ERROR_CHARS:
        text = text[:MAX_ERROR_CHARS] + "..."
    return BadRequest(f"invalid {kind}: {text}", param=kind)


def _check_size(text: str, kind: GrammarKind) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refusal(kind, "it holds half of a surrogate pair") from None
    if size > MAX_BYTES[kind]:
        raise refusal(kind, f"it has {size} bytes, at most {MAX_BYTES[kind]}")


def _json_grammar(text: str) -> str:
    # The compiler's own parser of schemas puts text that is no JSON into its result unseen.
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise refusal(GrammarKind.JSON_SCHEMA, f"no JSON: {e}") from None
    if schema is True:  # in JSON Schema the same as {}, but options need an object
        text = "{}"
    elif not isinstance(schema, dict):
        raise refusal(GrammarKind.JSON_SCHEMA, "must be an object or true")
    try:
        return LLMatcher.grammar_from_json_schema(text, defaults=SPACING)
    except ValueError as e:
        raise refusal(GrammarKind.JSON_SCHEMA, str(e)) from None


def _choice_lark(text: str) -> str:
    """Raises: BadRequest for an empty list: an answer needs something that it may be."""
    choices = orjson.loads(text)
    if not choices:
        raise refusal(GrammarKind.CHOICE, "there are no choices")
    return "start: " + " | ".join(json.dumps(choice) for choice in choices)


def _ebnf_lark(text: str) -> str:
    try:
        return any_to_lark(text)
    except Exception as e:  # the converter is plain Python and fails in the ways of its parts
        raise refusal(GrammarKind.EBNF, str(e) or type(e).__name__) from None
