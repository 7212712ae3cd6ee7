"""Usage of one HTTP request over all its choices.

A prompt counts once however many choices it has; completion tokens add up. Cached and replayed
tokens are those of each prompt's first choice: the later choices' own hits are not reported. The
generation of approximations is the largest of all choices (B34).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import Usage
from ..tokenizer.choice import Choice, Delta


class UsageSum:
    def __init__(self, choices: Sequence[Choice], *, has_cache_report: bool) -> None:
        self._usages = [choice.usage for choice in choices]
        self._first = [choice.index for choice in choices if choice.is_first]
        self._reasoning_tokens = [0] * len(self._usages)
        self._has_cache_report = has_cache_report

    def add(self, delta: Delta) -> None:
        self._usages[delta.index] = delta.usage

    def reasoned(self, index: int, tokens: int) -> None:
        """How many of a choice's tokens, so far, are reasoning."""
        self._reasoning_tokens[index] = tokens

    @property
    def total(self) -> Usage:
        first = [self._usages[index] for index in self._first]
        return Usage(
            sum(usage.prompt_tokens for usage in first),
            sum(usage.completion_tokens for usage in self._usages),
            sum(usage.cached_tokens for usage in first),
            sum(usage.replayed_tokens for usage in first),
            max((usage.approx_generation for usage in self._usages), default=0),
        )

    def extension(self) -> dict[str, object]:
        """Member of an answer under SGLang's name: in which tier cached tokens were found."""
        return {"sglext": {"cached_tokens_details": cached_tiers(self.total)}}

    def body(self) -> dict[str, object]:
        total, reasoning = self.total, sum(self._reasoning_tokens)
        details = {
            "cached_tokens": total.cached_tokens,
            "replayed_tokens": total.replayed_tokens,
            "approx_generation": total.approx_generation,
        }
        return {
            "prompt_tokens": total.prompt_tokens,
            "completion_tokens": total.completion_tokens,
            "total_tokens": total.prompt_tokens + total.completion_tokens,
            "prompt_tokens_details": details if self._has_cache_report else None,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
            "reasoning_tokens": reasoning,
        }


def cached_tiers(usage: Usage) -> dict[str, int]:
    """Cached tokens by where their KV was: all in the device's memory, the one tier there is."""
    return {"device": usage.cached_tokens, "host": 0, "storage": 0}
