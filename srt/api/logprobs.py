"""Log-probabilities in the three spellings: chat, completions, native triples.

All are natural logs of the raw model distribution. JSON has no infinities, so what is not finite
is written as `FLOOR`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..messages import TokenLogprob
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer

FLOOR = -9999.0
Triple = tuple[float, int, str | None]


def _finite(value: float) -> float:
    return value if math.isfinite(value) else FLOOR


def _pairs(delta: Delta) -> list[tuple[int, TokenLogprob]]:
    return [
        (token_id, entry)
        for token_id, entry in zip(delta.token_ids, delta.logprobs, strict=False)
        if entry is not None
    ]


def chat_content(tokenizer: Tokenizer, delta: Delta) -> list[dict[str, object]]:
    """`logprobs.content` of the tokens of a delta."""

    def entry(token_id: int, logprob: float) -> dict[str, object]:
        return {
            "token": tokenizer.token_text(token_id),
            "bytes": list(tokenizer.token_bytes(token_id)),
            "logprob": _finite(logprob),
        }

    return [
        {
            **entry(token_id, found.logprob),
            "top_logprobs": [
                entry(i, p) for i, p in zip(found.top_ids, found.top_logprobs, strict=True)
            ],
        }
        for token_id, found in _pairs(delta)
    ]


class CompletionLogprobs:
    """`logprobs` of text completions; keeps where the next token's text begins."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def take(self, delta: Delta) -> dict[str, object]:
        tokens: list[str] = []
        values: list[float] = []
        tops: list[dict[str, float]] = []
        offsets: list[int] = []
        for token_id, found in _pairs(delta):
            text = self._tokenizer.token_text(token_id)
            tokens.append(text)
            values.append(_finite(found.logprob))
            top = {text: _finite(found.logprob)}
            for i, p in zip(found.top_ids, found.top_logprobs, strict=True):
                top.setdefault(self._tokenizer.token_text(i), _finite(p))
            tops.append(top)
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }


class Triples:
    """Native `[logprob, id, text-or-null]`, with texts on request."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def tokens(self, delta: Delta) -> list[Triple]:
        return [self._triple(found.logprob, token_id) for token_id, found in _pairs(delta)]

    def tops(self, delta: Delta) -> list[list[Triple]]:
        return [self._list(found.top_ids, found.top_logprobs) for _, found in _pairs(delta)]

    def _list(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> list[Triple]:
        return [self._triple(p, i) for i, p in zip(token_ids, logprobs, strict=True)]

    def _triple(self, logprob: float, token_id: int) -> Triple:
        text = None if self._tokenizer is None else self._tokenizer.token_text(token_id)
        return (_finite(logprob), token_id, text)
