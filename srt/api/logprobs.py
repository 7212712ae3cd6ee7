"""Log-probabilities in the three spellings: chat, completions, native triples.

All are natural logs, by `--logprobs-mode` of the model's distribution or of that drawn from; those
of prompts are always the model's. JSON has no infinities: what is not finite is `FLOOR`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..messages import TokenLogprob
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.scores import PromptLog

FLOOR = -9999.0
Triple = tuple[float | None, int, str | None]


def finite(value: float) -> float:
    return value if math.isfinite(value) else FLOOR


def _pairs(delta: Delta) -> list[tuple[int, TokenLogprob]]:
    return [
        (token_id, entry)
        for token_id, entry in zip(delta.token_ids, delta.logprobs, strict=False)
        if entry is not None
    ]


def chat_content(
    tokenizer: Tokenizer, delta: Delta, num_top: int | None = None
) -> list[dict[str, object]]:
    """`logprobs.content` of the tokens of a delta. `num_top`: of the likeliest tokens that there
    are, only so many."""

    def entry(token_id: int, logprob: float) -> dict[str, object]:
        return {
            "token": tokenizer.token_text(token_id),
            "bytes": list(tokenizer.token_bytes(token_id)),
            "logprob": finite(logprob),
        }

    return [
        {
            **entry(token_id, found.logprob),
            "top_logprobs": [
                entry(i, p)
                for i, p in zip(found.top_ids[:num_top], found.top_logprobs[:num_top], strict=True)
            ],
        }
        for token_id, found in _pairs(delta)
    ]


@dataclass(slots=True)
class TextLists:
    """`logprobs` of text completions: four lists of equal length."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def extend(self, other: TextLists) -> None:
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset


class CompletionLogprobs:
    """Spells the lists; keeps where in the text the next token begins."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._offset = 0

    def take(self, delta: Delta, num_top: int | None = None) -> TextLists:
        """`num_top`: of the likeliest tokens that there are, only so many."""
        lists = TextLists()
        for token_id, found in _pairs(delta):
            self._add(lists, token_id, found, num_top)
            is_hidden = self._skip_special and self._tokenizer.is_special(token_id)
            self._offset += 0 if is_hidden else self._num_chars(token_id)
        return lists

    def take_prompt(self, log: PromptLog, text: str, num_top: int) -> TextLists:
        """The tokens of an echoed prompt, of which the answer's text starts with `text`."""
        lists = TextLists()
        for token_id, found, _ in log.tokens:
            self._add(lists, token_id, found, num_top)
            self._offset += self._prompt_chars(token_id, text)
        self._offset = len(text)
        return lists

    def _add(
        self, lists: TextLists, token_id: int, found: TokenLogprob | None, num_top: int | None
    ) -> None:
        text = self._tokenizer.token_text(token_id)
        lists.tokens.append(text)
        lists.text_offset.append(self._offset)
        if found is None:
            lists.token_logprobs.append(None)
            lists.top_logprobs.append(None)
            return
        top = {text: finite(found.logprob)}
        pairs = zip(found.top_ids[:num_top], found.top_logprobs[:num_top], strict=True)
        for i, p in pairs:
            top.setdefault(self._tokenizer.token_text(i), finite(p))
        lists.token_logprobs.append(finite(found.logprob))
        lists.top_logprobs.append(top)

    def _prompt_chars(self, token_id: int, text: str) -> int:
        """Characters of `text` that the token is: a BOS that was put in front is none."""
        if self._tokenizer.is_special(token_id):
            literal = self._tokenizer.token_text(token_id)
            return len(literal) if text.startswith(literal, self._offset) else 0
        is_dummy = self._offset == 0 and self._tokenizer.has_dummy_prefix
        has_space = self._tokenizer.token_bytes(token_id).startswith(b" ")
        return self._num_chars(token_id) - (is_dummy and has_space)

    def _num_chars(self, token_id: int) -> int:
        """Characters that begin in the token: UTF-8 bytes that do not go on with one."""
        return sum(byte & 0xC0 != 0x80 for byte in self._tokenizer.token_bytes(token_id))


class Triples:
    """Native `[logprob, id, text-or-null]`, with texts on request. `chosen_ids` are the ids whose
    logprobs were asked for at each position.
    """

    def __init__(self, tokenizer: Tokenizer | None, chosen_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._chosen_ids = chosen_ids

    def tokens(self, delta: Delta) -> list[Triple]:
        return [self.triple(found.logprob, token_id) for token_id, found in _pairs(delta)]

    def tops(self, delta: Delta) -> list[list[Triple]]:
        return [self.top(found) for _, found in _pairs(delta)]

    def chosen_lists(self, delta: Delta) -> list[list[Triple]]:
        return [self.chosen(found) for _, found in _pairs(delta)]

    def top(self, found: TokenLogprob) -> list[Triple]:
        return self._list(found.top_ids, found.top_logprobs)

    def chosen(self, found: TokenLogprob) -> list[Triple]:
        return self._list(self._chosen_ids, found.chosen)

    def _list(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> list[Triple]:
        return [self.triple(p, i) for i, p in zip(token_ids, logprobs, strict=True)]

    def triple(self, logprob: float | None, token_id: int) -> Triple:
        text = None if self._tokenizer is None else self._tokenizer.token_text(token_id)
        return (None if logprob is None else finite(logprob), token_id, text)
