"""One choice in flight: what is known of it in this process, from submission to its last delta.

Owns the trail of its text, the count of its visible tokens and the gathering of tokens into
deltas. Invariants: exactly one delta has an `ending`, and it is the last; the token counts of the
deltas add up to `usage.completion_tokens`; cached and replayed counts are the scheduler's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from ..messages import Finish, GenerateRequest, RequestId, RequestOutput, TokenLogprob, Usage
from .jobs import ChoiceName
from .scores import PromptLog
from .trail import Ending, TextTrail

Held = tuple[str, tuple[int, ...], tuple[TokenLogprob | None, ...]]  # text, ids, logprobs


@dataclass(slots=True)
class Delta:
    """News of one choice. `index` is prompt-major over all choices of the HTTP request.

    Not frozen, though nobody changes one: there is one for each streamed token.
    """

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
    _held: list[Held] = field(default_factory=list)  # outputs that wait for a delta

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
        ids, logprobs, usage = output.token_ids, output.logprobs, output.usage
        if piece.num_ids < len(ids):
            ids, logprobs = ids[: piece.num_ids], logprobs[: piece.num_ids]
        is_first = self.num_tokens == 0
        self.is_admitted = True
        self.num_tokens += len(ids)
        if usage.completion_tokens != self.num_tokens or not usage.prompt_tokens:
            usage = Usage(
                usage.prompt_tokens or len(self.request.prompt_ids),
                self.num_tokens,
                usage.cached_tokens,
                usage.replayed_tokens,
                usage.approx_generation,
            )
        self.usage = usage
        ending = self._ending(piece.stop, output.finish)
        if ending is None and not self._is_due(len(ids), is_first=is_first):
            self._held.append((piece.text, ids, logprobs))
            return None
        text = piece.text
        if self._held:
            text, ids, logprobs = self._gather((text, ids, logprobs))
        return Delta(self.index, text, ids, logprobs, self.usage, ending)

    def _is_due(self, num_new: int, *, is_first: bool) -> bool:
        interval = self.name.job.interval
        if interval == 0:
            return False
        num_ids = num_new
        if self._held:
            num_ids += sum(len(ids) for _, ids, _ in self._held)
        return num_ids > 0 and (is_first or num_ids >= interval)

    def _ending(self, stop: str | None, finish: Finish | None) -> Ending | None:
        if stop is not None:
            return Ending("stop", stop)
        if finish is None:
            return None
        message = finish.message
        if finish.reason == "abort" and self.abort_message is not None:
            message = self.abort_message
        return Ending(finish.reason, finish.matched, message)

    def _gather(self, last: Held) -> Held:
        texts, ids, logprobs = zip(*self._held, last, strict=True)
        self._held.clear()
        return "".join(texts), tuple(chain(*ids)), tuple(chain(*logprobs))
