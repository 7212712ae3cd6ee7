"""Logprobs of prompts: what may be asked for, and their spelling on each route.

    /generate         meta_info.input_token_logprobs, input_top_logprobs, input_token_ids_logprobs
    /v1/completions   echo: the prompt's tokens lead the lists of `logprobs` and the text
    both OpenAI ones  prompt_logprobs: a list of {id: {logprob, rank, decoded_token}}

The token at index 0 has no logprob: null. Ranges that need no prompt are checked here, and that a
request asks for no more numbers than an answer can hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import BadRequest
from ..tokenizer.encode import Tokenizer
from ..tokenizer.generation import Generation
from ..tokenizer.jobs import PromptJob
from ..tokenizer.limits import Limits
from ..tokenizer.scores import PromptLog
from .logprobs import Triples, finite

T = TypeVar("T")

MAX_LOGPROB_IDS = 128  # token_ids_logprob
MAX_NUMBERS = 1 << 22  # logprobs of prompts in one answer: some 100 MB of JSON
INLINE_TOKENS = 4096  # scored prompt tokens that are spelled without a thread: about 5 ms


def check_start(start: int | None) -> int | None:
    """The first prompt token with a logprob; None for output only. Raises BadRequest."""
    if start is None or start == -1:
        return None
    if start < -1:
        raise BadRequest(
            f"logprob_start_len must be -1 (output only) or at least 0, got {start}",
            param="logprob_start_len",
        )
    return start


def check_logprob_ids(limits: Limits, asked: Sequence[int]) -> tuple[int, ...]:
    """Raises BadRequest for too many, or one outside the vocabulary."""
    if len(asked) > MAX_LOGPROB_IDS:
        raise BadRequest(
            f"token_ids_logprob must be at most {MAX_LOGPROB_IDS} ids, got {len(asked)}",
            param="token_ids_logprob",
        )
    for token_id in asked:
        if not 0 <= token_id < limits.vocab_size:
            raise BadRequest(
                f"token_ids_logprob holds token id {token_id}, which is outside the vocabulary "
                f"[0, {limits.vocab_size})",
                param="token_ids_logprob",
            )
    return tuple(asked)


def check_scores(jobs: Sequence[PromptJob]) -> None:
    """Raises BadRequest for a start beyond its prompt, or more numbers than an answer may hold."""
    total = 0
    for job in jobs:
        request = job.request
        start, length = request.logprob_start, len(request.prompt_ids)
        if start is None:
            continue
        if start > length:
            raise BadRequest(
                f"logprob_start_len must be at most the prompt's length, {length} tokens, "
                f"got {start}",
                param="logprob_start_len",
            )
        each = 1 + (request.top_logprobs or 0) + len(request.logprob_ids)
        total += job.n * (length - start) * each
    if total > MAX_NUMBERS:
        raise BadRequest(
            f"the request asks for {total} logprobs of its prompt, at most {MAX_NUMBERS}",
            param="logprobs",
        )


def native_members(log: PromptLog, triples: Triples) -> dict[str, object]:
    """Members of `meta_info`."""
    tokens = list(log.tokens)
    members: dict[str, object] = {
        "input_token_logprobs": [
            triples.triple(None if found is None else found.logprob, token_id)
            for token_id, found, _ in tokens
        ]
    }
    if log.num_top:
        members["input_top_logprobs"] = [found and triples.top(found) for _, found, _ in tokens]
    if log.num_chosen:
        members["input_token_ids_logprobs"] = [
            found and triples.chosen(found) for _, found, _ in tokens
        ]
    return members


def prompt_logprobs(tokenizer: Tokenizer, log: PromptLog, num_top: int) -> list[object]:
    """The token itself and its `num_top` likeliest tokens, by id as text."""
    spelled: list[object] = []
    for token_id, found, rank in log.tokens:
        if found is None:
            spelled.append(None)
            continue
        entries = {str(token_id): _entry(tokenizer, token_id, found.logprob, rank)}
        tops = zip(found.top_ids[:num_top], found.top_logprobs[:num_top], strict=True)
        for i, (top_id, logprob) in enumerate(tops):
            entries.setdefault(str(top_id), _entry(tokenizer, top_id, logprob, i + 1))
        spelled.append(entries)
    return spelled


def _entry(
    tokenizer: Tokenizer, token_id: int, logprob: float, rank: int | None
) -> dict[str, object]:
    text = tokenizer.token_text(token_id)
    return {"logprob": finite(logprob), "rank": rank, "decoded_token": text}


async def spell(generation: Generation, make: Callable[[], T]) -> T:
    """`make()`, in a thread when it spells so many scores that other clients would wait."""
    logs = [choice.scores for choice in generation.choices if choice.scores is not None]
    if sum(len(log.prompt_ids) - log.start for log in logs) <= INLINE_TOKENS:
        return make()
    return await asyncio.to_thread(make)
