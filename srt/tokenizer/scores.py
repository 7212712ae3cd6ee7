"""Logprobs of one prompt as they arrive, chunk by chunk.

Owns their order: parts ascend without a gap, and all are there when the request's first token is.
Choices of one prompt may share a log: the first choice's request fills it for all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import InvariantBroken
from ..messages import GenerateRequest, PromptOutput, TokenLogprob
from ..scores import PromptScores


class ScoredToken(NamedTuple):
    """A prompt token; `found` and `rank` (1: the likeliest) are None for the one at index 0."""

    token_id: int
    found: TokenLogprob | None
    rank: int | None


@dataclass(slots=True, eq=False)
class PromptLog:
    """`start` is the index of the first token of the log."""

    prompt_ids: array[int]
    start: int
    num_top: int
    num_chosen: int
    _parts: list[PromptScores] = field(default_factory=list)
    _next: int = 0  # index of the token that the next part begins with

    @classmethod
    def of(cls, request: GenerateRequest) -> PromptLog:
        start = request.logprob_start
        assert start is not None
        log = cls(request.prompt_ids, start, request.top_logprobs or 0, len(request.logprob_ids))
        log._next = max(start, 1)
        return log

    def add(self, output: PromptOutput) -> None:
        """Raises InvariantBroken for a part that does not go on where the last one ended."""
        if output.first != self._next:
            raise InvariantBroken(f"scores from {output.first} on, not {self._next}")
        self._parts.append(output.scores)
        self._next += len(output.scores.logprobs)

    @property
    def tokens(self) -> Iterator[ScoredToken]:
        """From `start` to the last one known."""
        if self.start == 0:
            yield ScoredToken(self.prompt_ids[0], None, None)
        index = max(self.start, 1)
        for part in self._parts:
            for row, logprob in enumerate(part.logprobs):
                found = self._row(part, row, logprob)
                yield ScoredToken(self.prompt_ids[index], found, part.ranks[row])
                index += 1

    def _row(self, part: PromptScores, row: int, logprob: float) -> TokenLogprob:
        top = len(part.top_ids) // len(part.logprobs)  # less than asked in a small vocabulary
        tops, chosen = slice(row * top, row * top + top), row * self.num_chosen
        return TokenLogprob(
            logprob,
            tuple(part.top_ids[tops]),
            tuple(part.top_logprobs[tops]),
            tuple(part.chosen[chosen : chosen + self.num_chosen]),
        )
