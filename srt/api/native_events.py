"""The native spelling of results, whole and as cumulative stream events.

An event repeats all text and ids so far. Their JSON is kept as bytes that only grow, because
spelling thousands of ids anew for every token would cost more than the token.
"""

from __future__ import annotations

import time

import orjson

from ..net.sse import DATA, END
from ..tokenizer.choice import Choice, Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.trail import Ending
from .logprobs import Triples
from .scoring import native_members
from .service import WEIGHT_VERSION
from .usage import cached_tiers


class NativeResult:
    """One choice: `body` spells it whole, `event_members` spells what has come so far."""

    def __init__(self, choice: Choice, tokenizer: Tokenizer | None, arrived_at: float) -> None:
        """`tokenizer` None leaves the texts of logprobs null."""
        self._choice = choice
        self._triples = Triples(tokenizer, choice.request.logprob_ids)
        self._arrived_at = arrived_at
        self._has_logprobs = choice.request.top_logprobs is not None
        self._has_tops = bool(choice.request.top_logprobs)
        self._has_chosen = self._has_logprobs and len(choice.request.logprob_ids) > 0
        self._is_first_event = True
        self._text = bytearray()
        self._ids = bytearray()
        self._logprobs = bytearray()
        self._tops = bytearray()
        self._chosen = bytearray()

    def body(self, delta: Delta) -> dict[str, object]:
        meta = self._meta(delta)
        if self._has_logprobs:
            meta["output_token_logprobs"] = self._triples.tokens(delta)
        if self._has_tops:
            meta["output_top_logprobs"] = self._triples.tops(delta)
        if self._has_chosen:
            meta["output_token_ids_logprobs"] = self._triples.chosen_lists(delta)
        if self._choice.scores is not None:
            meta |= native_members(self._choice.scores, self._triples)
        return {"text": delta.text, "output_ids": delta.token_ids, "meta_info": meta}

    def event_members(self, delta: Delta) -> bytes:
        """JSON members `text, output_ids, meta_info` after `delta`."""
        self._text += orjson.dumps(delta.text)[1:-1]  # escapes never reach over a character
        _append(self._ids, delta.token_ids)
        meta = orjson.dumps(self._meta(delta))[:-1]
        if self._has_logprobs:
            _append(self._logprobs, self._triples.tokens(delta))
            meta += _member(b"output_token_logprobs", self._logprobs)
        if self._has_tops:
            _append(self._tops, self._triples.tops(delta))
            meta += _member(b"output_top_logprobs", self._tops)
        if self._has_chosen:
            _append(self._chosen, self._triples.chosen_lists(delta))
            meta += _member(b"output_token_ids_logprobs", self._chosen)
        meta += self._prompt_members(delta)
        parts = (b'"text":"', self._text, b'","output_ids":[', self._ids, b'],"meta_info":', meta)
        return b"".join((*parts, b"}"))

    def _prompt_members(self, delta: Delta) -> bytes:
        """In the first event, for clients that wait for it, and in the last, for those that keep
        only that one: a prompt may be long, and between them nothing of it changes."""
        is_due = self._is_first_event or delta.ending is not None
        self._is_first_event = False
        if self._choice.scores is None or not is_due:
            return b""
        return b"," + orjson.dumps(native_members(self._choice.scores, self._triples))[1:-1]

    def _meta(self, delta: Delta) -> dict[str, object]:
        usage, now = delta.usage, time.monotonic()
        meta: dict[str, object] = {
            "id": self._choice.rid,
            "finish_reason": _finish_reason(delta.ending, usage.completion_tokens),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": cached_tiers(usage),
            "replayed_tokens": usage.replayed_tokens,
            "approx_generation": usage.approx_generation,
            "weight_version": WEIGHT_VERSION,
            "e2e_latency": now - self._arrived_at,
        }
        if self._choice.first_at is not None:
            meta["first_token_latency"] = self._choice.first_at - self._arrived_at
        return meta


class NativeEvents:
    """The writer of a native stream."""

    def __init__(self, results: list[NativeResult], *, has_index: bool) -> None:
        self._results = results
        self._has_index = has_index

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        index = b'"index":%d,' % delta.index if self._has_index else b""
        members = self._results[delta.index].event_members(delta)
        return b"".join((DATA, b"{", index, members, b"}", END))

    def end(self) -> bytes:
        return b""


def _member(name: bytes, items: bytearray) -> bytes:
    return b"".join((b',"', name, b'":[', items, b"]"))


def _append(encoded: bytearray, values: object) -> None:
    more = orjson.dumps(values)[1:-1]
    if more:
        encoded += b"," + more if encoded else more


def _finish_reason(ending: Ending | None, num_tokens: int) -> dict[str, object] | None:
    if ending is None:
        return None
    if ending.reason == "length":
        return {"type": "length", "length": num_tokens}
    if ending.reason == "abort":
        return {"type": "abort", "message": ending.message, "status_code": None, "err_type": None}
    return {"type": ending.reason, "matched": ending.matched}
