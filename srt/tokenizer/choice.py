"""One choice in flight: what is known of it in this process, from submission to its last delta.

Owns the trail of its text, the count of its visible tokens and the gathering of tokens into
deltas. Invariants: exactly one delta has an `ending`, and it is the last; the token counts of the
deltas add up to `usage.completion_tokens`; cached and replayed counts are the scheduler's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..messages import Finish, GenerateRequest, RequestId, RequestOutput, TokenLogprob, Usage
from .jobs import ChoiceName
from .scores import PromptLog
from .trail import Ending, TextTrail


@dataclass(frozen=True, slots=True)
class Delta:
    """News of one choice. `index` is prompt-major over all choices of the HTTP request."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob | None, ...]
    usage: Usage
    ending: Ending | None


@dataclass(slots=True, eq=False)
class Choice:
    """`name.rid` is the client's name of the choice, `wire_rid` what the scheduler knows it as:
    they differ only while an ended choice of the same name is still known there.
    """

    name: ChoiceName
    wire_rid: RequestId
    index: int
    request: GenerateRequest
    trail: TextTrail
    arrived_at: float
    scores: PromptLog | None = None  # of the prompt; may be shared with other choices of it
    first_at: float | None = None
    last_at: float = 0.0
    abort_message: str | None = None
    num_tokens: int = 0
    is_admitted: bool = False
    usage: Usage = field(init=False)
    _texts: list[str] = field(default_factory=list)
    _ids: list[int] = field(default_factory=list)
    _logprobs: list[TokenLogprob | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.usage = Usage(len(self.request.prompt_ids), 0, 0, 0)

    @property
    def rid(self) -> str:
        return self.name.rid

    @property
    def prompt_rid(self) -> str:
        return self.name.prompt_rid

    @property
    def is_first(self) -> bool:
        """Of its prompt: the one that speaks for the prompt's cached tokens."""
        return self.name.ordinal == 0

    def take(self, output: RequestOutput) -> Delta | None:
        """Adds what the scheduler sent; returns the delta that is due now, if any."""
        piece = self.trail.push(output.token_ids, output.finish)
        self._texts.append(piece.text)
        self._ids.extend(output.token_ids[: piece.num_ids])
        self._logprobs.extend(output.logprobs[: piece.num_ids])
        is_first = self.num_tokens == 0
        self.is_admitted = True
        self.num_tokens += piece.num_ids
        self.usage = Usage(
            output.usage.prompt_tokens or len(self.request.prompt_ids),
            self.num_tokens,
            output.usage.cached_tokens,
            output.usage.replayed_tokens,
        )
        ending = self._ending(piece.stop, output.finish)
        if ending is None and not self._is_due(is_first):
            return None
        return self._release(ending)

    def _is_due(self, is_first: bool) -> bool:
        interval = self.name.job.interval
        if interval == 0 or not self._ids:
            return False
        return is_first or len(self._ids) >= interval

    def _ending(self, stop: str | None, finish: Finish | None) -> Ending | None:
        if stop is not None:
            return Ending("stop", stop)
        if finish is None:
            return None
        message = finish.message
        if finish.reason == "abort" and self.abort_message is not None:
            message = self.abort_message
        return Ending(finish.reason, finish.matched, message)

    def _release(self, ending: Ending | None) -> Delta:
        delta = Delta(
            self.index,
            "".join(self._texts),
            tuple(self._ids),
            tuple(self._logprobs),
            self.usage,
            ending,
        )
        self._texts.clear()
        self._ids.clear()
        self._logprobs.clear()
        return delta
