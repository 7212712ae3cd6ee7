"""State of one request in the scheduler: every field that changes while it is served.

    tokens   |---------------- prompt ----------------|-- sampled --|
             0                                        prompt_len     len     known     max_known
    rows     |==== computed ====|==== planned ====|.... to run ....|
                                computed          next

`computed <= next <= known`, except during a replay that is cut, where `next` is still below the hit
and `computed` is the hit; a canonical request comes to such a place at each grid point too. `known`
counts tokens to run: those that exist, and those that will when the planned rows are answered, save
the last one allowed, after which nothing is sampled. Of a paced request, whose next row waits for
its last answer, it counts tokens that exist only. Only the scheduler changes a request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..cache.lease import Lease
from ..cache.replay import ReplayShape
from ..cache.warm import Window
from ..errors import InvariantBroken
from ..grammar.store import Matching
from ..messages import Finish, RequestId, SamplingParams, Usage


class RequestState(StrEnum):
    HELD = "held"  # until the next row of its grammar is there
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


MAX_LOOKBACK = 15  # ids

MOVES = {
    (RequestState.HELD, RequestState.WAITING),
    (RequestState.HELD, RequestState.FINISHED),
    (RequestState.RUNNING, RequestState.HELD),  # preemption, with a row of its grammar on its way
    (RequestState.WAITING, RequestState.RUNNING),  # admission
    (RequestState.RUNNING, RequestState.WAITING),  # preemption
    (RequestState.RUNNING, RequestState.FINISHED),
    (RequestState.WAITING, RequestState.FINISHED),  # aborted in the queue, or it can never fit
}


@dataclass(slots=True, eq=False)
class Request:
    rid: RequestId
    tokens: array[int]
    prompt_len: int
    max_known: int  # prompt + max_new_tokens, capped by the context
    sampling: SamplingParams  # with a seed
    stop_ids: frozenset[int]
    namespace: tuple[tuple[str, str], ...]
    shape: ReplayShape
    top_logprobs: int | None
    priority: int  # higher is more important
    logprob_ids: array[int]
    to_score: int  # next prompt token whose logprob is to be returned; the prompt's length: none
    arrival: int  # number in order of arrival
    arrived: float  # seconds of the caller's clock
    state: RequestState = RequestState.WAITING
    next: int = 0  # first row not yet planned
    computed: int = 0  # tokens whose global KV is in pages, by answered steps
    known: int = 0  # tokens whose rows have been run or are to be
    hit: int = 0  # adopted length, or the last grid point: rows below write no global KV
    capacity: int = 0  # tokens that the pages held have room for
    slot: int = 0
    lease: Lease | None = None  # held exactly while RUNNING (rule T20)
    last_step: int = -1  # newest step with a row of this request
    intent: Finish | None = None  # how to end it at the next answer (rule T32)
    was_admitted: bool = False
    cached: int = 0  # hit and replayed rows of the first admission (rule B37)
    replayed: int = 0
    approx: int = 0  # B34, the largest so far
    queue_s: float = 0.0
    session: str | None = None  # a hint: whose windows to prefer
    parent: Request | None = None  # of equal prompt, which it prefills for both
    has_forks: bool = False
    trimmed: int = 0  # its length at admission, when decoder layers run its last window only (B17)
    ever_computed: int = 0  # rows below it had been computed before a preemption
    spared_until: int = 0  # not a victim while `len` is below (rule T46)
    matching: Matching | None = None  # its place in its grammar; see `constrained.py`
    mask: array[int] | None = None  # of the next row to be sampled; None while it is made
    ahead: tuple[array[int], ...] = ()  # masks of the rows after, one for each of `drafts`
    told: int = 0  # tokens that the sampler knows
    unsent: tuple[int, ...] = ()  # forced tokens that the client has not got yet
    drafts_most: int = 0  # drafts that a step may verify; 0 without speculation
    drafts: tuple[int, ...] = ()  # guesses at what follows the last token
    overtaken: int = 0  # admissions of later arrivals while it was the oldest waiting

    @property
    def len(self) -> int:
        return len(self.tokens)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def is_paced(self) -> bool:
        """Whether its next row is known only when the last answer is: what a grammar allows, or
        what is drafted, depends on it."""
        return self.matching is not None or self.drafts_most > 0

    @property
    def hit_limit(self) -> int:
        """Tokens that a hit may cover at most: the last known token is always run, to have its
        logits (T10), and so is the token before one whose logprob is still wanted (B26). The grid
        of a canonical request is that of its prompt, also when it resumes with output (B35)."""
        if self.to_score < self.prompt_len:
            return self.to_score - 1
        return (self.prompt_len if self.shape.grid else len(self.tokens)) - 1

    @property
    def uncomputed(self) -> int:
        """Tokens of its prompt that are still to be computed; a hit is known at admission only."""
        return max(0, self.prompt_len - self.computed)

    def lookback(self) -> array[int]:
        """Ids before the next row, newest first: some models hash n-grams."""
        return self.tokens[max(0, self.next - MAX_LOOKBACK) : self.next][::-1]

    def move(self, state: RequestState) -> None:
        """Raises: InvariantBroken for a move that is not in `MOVES`."""
        if (self.state, state) not in MOVES:
            raise InvariantBroken(f"request {self.rid}: {self.state} -> {state}")
        self.state = state

    def fitting(self, drafts: Sequence[int]) -> tuple[int, ...]:
        """The first of `drafts` that are worth a row: up to a stop id, and so that no token comes
        after the last one allowed."""
        count = min(len(drafts), self.drafts_most, max(0, self.max_known - 1 - self.len))
        for index, token in enumerate(drafts[:count]):
            if token in self.stop_ids:
                return tuple(drafts[:index])
        return tuple(drafts[:count])

    def take_unsent(self) -> tuple[int, ...]:
        unsent, self.unsent = self.unsent, ()
        return unsent

    @property
    def is_prefilling(self) -> bool:
        """Whether rows of its prompt are still to be answered, and it is on its way to that."""
        computed = max(self.computed, self.ever_computed)
        is_alive = self.state in (RequestState.WAITING, RequestState.RUNNING)
        return is_alive and computed < self.prompt_len

    def window(self) -> Window | None:
        """What the rings of its slot hold; None while the rows of its admission are unanswered."""
        if self.computed <= self.hit or self.lease is None:
            return None
        return Window(
            ns=self.namespace,
            ids=self.tokens[: self.computed].tobytes(),
            start=max(self.hit, self.trimmed - 1),
            written=max(self.next, self.computed),
            approx=max(self.lease.approx, int(self.shape.trims)),
            session=self.session,
        )

    def usage(self) -> Usage:
        return Usage(self.prompt_len, self.num_output, self.cached, self.replayed, self.approx)
