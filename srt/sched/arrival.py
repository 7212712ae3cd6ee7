"""Arrivals: a `GenerateRequest` becomes a `Request` that can wait, or is refused.

Owns what is fixed once at arrival: number, seed, scope of the cache, shape of replay, priority.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ..cache.manager import CacheManager
from ..config import SchedSection
from ..grammar.store import Matching
from ..messages import GenerateRequest
from .limits import check_request, max_known
from .request import Request, RequestState
from .scoring import first_to_score, scoring_shape

SEED_BITS = 32


class Arrivals:
    __slots__ = ("_settings", "_cache", "_context_len", "_rng", "_count")

    def __init__(self, settings: SchedSection, cache: CacheManager, context_len: int) -> None:
        """`context_len` in tokens, prompt and output."""
        self._settings = settings
        self._cache = cache
        self._context_len = context_len
        self._rng = Random(settings.seed)
        self._count = 0

    def check(self, message: GenerateRequest) -> None:
        """Raises: BadRequest for what can never run here. Asked before another loses its place in
        the queue to `message`."""
        check_request(message, self._context_len, self._cache.facts)
        scoring_shape(message, self._cache.rule)

    def priority(self, message: GenerateRequest) -> int:
        """What counts here: nothing, unless the server honours priorities."""
        return message.priority if self._settings.priorities else 0

    def make(
        self,
        message: GenerateRequest,
        now: float,
        matching: Matching | None,
        parent: Request | None,
    ) -> Request:
        """`message` was checked; `matching` is the start of its grammar. Masks are all that workers
        get of one. `parent`: the request it forks off, if that has not ended."""
        self._count += 1
        sampling = replace(message.sampling, grammar=None)
        if sampling.seed is None:  # drawn once, so that a resumed request goes on as it began
            sampling = replace(sampling, seed=self._rng.getrandbits(SEED_BITS))
        shape = scoring_shape(message, self._cache.rule)
        if parent is not None:
            parent.has_forks = True
        return Request(
            rid=message.rid,
            tokens=message.prompt_ids[:],
            prompt_len=len(message.prompt_ids),
            max_known=max_known(message, self._context_len),
            sampling=sampling,
            stop_ids=frozenset(sampling.stop_token_ids),
            namespace=message.namespace + self._cache.rule.namespace(shape),
            shape=shape,
            top_logprobs=message.top_logprobs,
            priority=self.priority(message),
            logprob_ids=message.logprob_ids,
            to_score=first_to_score(message),
            arrival=self._count,
            arrived=now,
            known=len(message.prompt_ids),
            session=message.session,
            parent=parent,
            matching=matching,
            drafts_most=max(0, self._settings.draft_tokens),
            state=RequestState.WAITING if matching is None else RequestState.HELD,
        )
