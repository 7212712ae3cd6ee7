"""Fields of requests that say what form an answer must have -> one `Grammar`, checked.

Owns the spellings (this server's own, OpenAI's and vLLM's), their conflicts, and the check, which
runs in a thread. Whatever is refused here is refused before the first byte of an answer.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..errors import BadRequest, NotSupported
from ..grammar.compile import after_free_text, check, from_choices, from_json_schema, json_object
from ..token_masks import Grammar, GrammarKind
from ..tokenizer.encode import Tokenizer
from .later import not_supported
from .sampling import Sampling
from .schema import OpenAIFields, ResponseFormat, SamplingFields, StructuredOutputs

CHECK_S = 10.0  # far beyond what the compiler's own limits allow
CHECK_THREADS = 2
FORMATS = ("text", "json_object", "json_schema", "structural_tag")

Found = dict[str, Grammar]  # by the name of the field
Schema = str | dict[str, Any] | bool | None


class GrammarDesk:
    """Checks grammars. The scheduler, which works with them, knows what ids spell."""

    def __init__(self, tokenizer: Tokenizer, *, is_on: bool) -> None:
        self._tokenizer = tokenizer
        self._is_on = is_on
        self._last: Grammar | None = None  # the rows of a batch have the same, as a rule
        self._threads = ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="grammar")

    async def check(self, sampling: Sampling) -> None:
        """To be awaited before a request is submitted. Raises: BadRequest in the compiler's words,
        NotSupported."""
        grammar = sampling.params.grammar
        if grammar is None or grammar == self._last:
            return
        if not self._is_on:
            raise NotSupported("grammars are switched off: --grammar-backend none")
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._threads, check, grammar)
        try:
            await asyncio.wait_for(job, CHECK_S)
        except TimeoutError:
            raise BadRequest(
                f"the {grammar.kind} takes longer than {CHECK_S:g} s to compile", param=grammar.kind
            ) from None
        self._last = grammar

    def after_reasoning(self, sampling: Sampling, close: str) -> Sampling:
        """For a prompt that opens the model's reasoning: the form is that of what follows."""
        grammar = sampling.params.grammar
        if grammar is None:
            return sampling
        ids = self._tokenizer.encode(close, add_special=False)
        is_special = len(ids) == 1 and self._tokenizer.is_special(ids[0])
        return constrained(
            sampling, after_free_text(grammar, close, ids[0] if is_special else None)
        )


def constrained(sampling: Sampling, grammar: Grammar | None) -> Sampling:
    return replace(sampling, params=replace(sampling.params, grammar=grammar))


def native_grammar(fields: SamplingFields, prefix: str) -> Grammar | None:
    """Raises BadRequest for more than one."""
    found = _texts({prefix + "regex": fields.regex}, {prefix + "ebnf": fields.ebnf})
    return _only(found | _schema(prefix + "json_schema", fields.json_schema))


def openai_grammar(body: OpenAIFields) -> Grammar | None:
    """Raises BadRequest, NotSupported."""
    found = _texts(
        {"regex": body.regex, "guided_regex": body.guided_regex},
        {"ebnf": body.ebnf, "guided_grammar": body.guided_grammar},
    )
    found |= _schema("json_schema", body.json_schema) | _schema("guided_json", body.guided_json)
    if body.guided_choice:
        found["guided_choice"] = from_choices(body.guided_choice)
    if body.response_format is not None:
        found |= _response_format(body.response_format)
    if body.structured_outputs is not None:
        found |= _structured_outputs(body.structured_outputs)
    return _only(found)


def _only(found: Found) -> Grammar | None:
    if len(found) > 1:
        first, second = list(found)[:2]
        raise BadRequest(
            f"{first} and {second} are both set, but an answer has one grammar", param=second
        )
    return next(iter(found.values()), None)


def _texts(regexes: dict[str, str | None], ebnfs: dict[str, str | None]) -> Found:
    found = {name: Grammar(GrammarKind.REGEX, text) for name, text in regexes.items() if text}
    return found | {name: Grammar(GrammarKind.EBNF, text) for name, text in ebnfs.items() if text}


def _schema(name: str, schema: Schema) -> Found:
    """As text or as what it spells; the empty text is none."""
    if schema is None or schema == "":
        return {}
    if isinstance(schema, str):
        return {name: Grammar(GrammarKind.JSON_SCHEMA, schema)}
    return {name: from_json_schema(schema)}


def _response_format(form: ResponseFormat) -> Found:
    name = "response_format"
    if form.type not in FORMATS:
        raise BadRequest(
            f"{name}.type must be one of {', '.join(FORMATS)}, got {form.type!r}",
            param=f"{name}.type",
        )
    if form.type == "structural_tag":
        raise not_supported(name, "type 'structural_tag'")
    if form.type == "json_object":
        return {name: json_object()}
    if form.type == "text":
        return {}
    schema = form.json_schema.schema if form.json_schema is not None else None
    if schema is None:
        raise BadRequest(
            f"{name} of type json_schema needs json_schema.schema", param=f"{name}.json_schema"
        )
    return {name: from_json_schema(schema)}


def _structured_outputs(asked: StructuredOutputs) -> Found:
    name = "structured_outputs."
    later = {
        "structural_tag": asked.structural_tag,
        "whitespace_pattern": asked.whitespace_pattern,
        "disable_additional_properties": asked.disable_additional_properties,
    }
    for field, value in later.items():
        if value:
            raise not_supported(name + field)
    found = _texts({name + "regex": asked.regex}, {name + "grammar": asked.grammar})
    found |= _schema(name + "json", asked.json)
    if asked.choice:
        found[name + "choice"] = from_choices(asked.choice)
    if asked.json_object:
        found[name + "json_object"] = json_object()
    return found
