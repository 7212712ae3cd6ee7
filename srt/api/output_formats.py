"""How this server's model writes reasoning and calls: settled once at start.

Owns the meaning of `--reasoning-parser` and `--tool-call-parser`. Without the first, reasoning
stays in the content. Calls are looked for only in answers to requests with tools, so without the
second such requests are served as with `auto`: whoever sends tools wants calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..config import ModelSection
from ..parse.reasoning import ReasoningFormat
from ..parse.tools import HERMES, Dialect, find_dialect, find_reasoning
from ..tokenizer.encode import Tokenizer
from ..tokenizer.prompts import PromptFormat


@dataclass(frozen=True, slots=True)
class OutputFormats:
    """`has_tool_parser`: the operator named one. `shown_ids` are special tokens that the parsers
    have to see, though clients do not.
    """

    reasoning: ReasoningFormat | None
    dialect: Dialect
    has_tool_parser: bool
    shown_ids: frozenset[int]


def find_formats(
    model: ModelSection, model_type: str, template: PromptFormat | None, tokenizer: Tokenizer
) -> OutputFormats:
    """Raises ConfigError for a parser that does not exist."""
    source = template.source if template else ""
    is_reasoning = template is not None and template.reasons
    named = model.reasoning_parser or ("auto" if is_reasoning else "")
    reasoning = find_reasoning(named, source, model_type)
    dialect = find_dialect(model.tool_call_parser, source, model_type)
    if template is not None and not template.knows_tools:
        dialect = HERMES  # what the text says that stands in for the template's own
    marks = (*dialect.marks, *(reasoning.marks if reasoning else ()))
    return OutputFormats(
        reasoning, dialect, bool(model.tool_call_parser), _special_within(marks, tokenizer)
    )


def _special_within(marks: Iterable[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Special tokens that a mark is made of."""
    texts = ((token_id, tokenizer.token_text(token_id)) for token_id in tokenizer.special_ids)
    marks = tuple(marks)
    return frozenset(
        token_id for token_id, text in texts if text and any(text in mark for mark in marks)
    )
