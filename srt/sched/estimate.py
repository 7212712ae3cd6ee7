"""How much of its remaining output a running request is expected to need (rules T24, T46).

Reserving everything that clients allow (`max_new_tokens`) leaves most of the pool idle; reserving
nothing preempts all the time. The ratio between the two falls slowly while all goes well and is
raised by a preemption, so that one preemption is not followed by the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from .request import Request

INITIAL = 0.7  # share of the remaining output reserved at conservativeness 1
LOWEST = 0.1  # share reserved after a long time without preemption
DECAY = (INITIAL - LOWEST) / 600  # per calm step: from the initial to the lowest in 600 steps
AHEAD_STEPS = 20  # further steps that all survivors of a preemption are to have room for
MOST_TOKENS = 4096  # clients that set no limit allow the whole context; few use it


class NewTokenEstimate:
    def __init__(self, conservativeness: float) -> None:
        self._initial = min(1.0, INITIAL * conservativeness)
        self._lowest = min(1.0, LOWEST * conservativeness)
        self.ratio = self._initial

    def tokens(self, request: Request) -> int:
        """Expected number of tokens to run beyond those known: at least one while more may come.
        The last one allowed is never run."""
        remaining = min(max(0, request.max_known - 1 - request.known), MOST_TOKENS)
        return min(remaining, 1 + int(remaining * self.ratio))

    def decay(self) -> None:
        """After a step without preemption."""
        self.ratio = max(self._lowest, self.ratio - DECAY)

    def preempted(self, survivors: Iterable[Request]) -> None:
        """After a preemption: what survivors have used so far and a few steps more is the least."""
        used = allowed = 0
        for request in survivors:
            used += request.num_output + AHEAD_STEPS
            allowed += min(request.max_known - request.prompt_len, MOST_TOKENS)
        measured = used / allowed if allowed else 1.0
        self.ratio = min(1.0, max(self.ratio, self._initial, measured))
