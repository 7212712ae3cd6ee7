"""Grammars as values: their text, what ids spell, and which ids may come next.

They are fields and messages of `messages.py`; apart from it because of its length only.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum

from .arrays import ids


class GrammarKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"  # GBNF, as llama.cpp and XGrammar write it; Lark is taken too
    CHOICE = "choice"  # a JSON list of strings
    LARK = "lark"  # llguidance's dialect: `%json {...}`, special tokens as `<|name|>`


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must match from its first to its last token; `grammar/compile.py` makes and
    checks them. `prelude`: Lark rules of what comes before, if anything does.
    """

    kind: GrammarKind
    text: str
    prelude: str = ""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """What the ids spell: the scheduler has no tokenizer. `data` holds all bytes in a row, filled
    up with zeros to whole int32; an id that text never becomes has length 0.
    """

    lengths: array[int]
    data: array[int]
    special_ids: array[int]
    eos_ids: array[int]


@dataclass(frozen=True, slots=True)
class TokenMask:
    """Which ids a sampled span of `slot` may become: bit `i % 32` of word `i // 32` for id i; ids
    beyond the words may not. `forced` are output ids that were not sampled, since the last one.
    """

    slot: int
    words: array[int]
    forced: array[int] = field(default_factory=ids)
