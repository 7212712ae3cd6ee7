"""Load of replicas in tokens: what this router has sent, corrected by what replicas report.

    load = what the last report said, less what has ended since
           + what was sent after that report had been asked for

A request costs its uncached prompt tokens until its first byte and an expected number of decode
tokens until its last. Reports carry the number of the last request sent before they were asked for:
an old one cannot undo what was sent later. Pure; writes loads into the `Fleet`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .fleet import Fleet

BYTES_PER_TOKEN = 4.0  # of JSON prompts; English text has a little more


@dataclass(frozen=True, slots=True)
class LoadRules:
    """`decode_weight`: cost of a decode token in prompt tokens. `decode_tokens`: expected length
    of an output.
    """

    decode_weight: float = 1.0
    decode_tokens: float = 256.0

    @property
    def decode_cost(self) -> float:
        return self.decode_weight * self.decode_tokens


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that was sent to a replica; costs in tokens."""

    replica: str
    number: int
    prefill: float
    decode: float


@dataclass(slots=True, eq=False)
class _Account:
    reported: float = 0.0
    report_number: int = 0
    since: float = 0.0  # of live tickets that the report cannot know
    live: dict[int, Ticket] = field(default_factory=dict)


class Ledger:
    def __init__(self, fleet: Fleet, rules: LoadRules) -> None:
        self._fleet = fleet
        self._rules = rules
        self._accounts: dict[str, _Account] = {}
        self._number = 0

    @property
    def number(self) -> int:
        """Of the last request sent; what a report that is asked for now knows at most."""
        return self._number

    def add(self, replica: str) -> None:
        self._accounts[replica] = _Account()

    def remove(self, replica: str) -> None:
        """Tickets that are still open may be closed later, without effect."""
        del self._accounts[replica]

    def num_live(self, replica: str) -> int:
        account = self._accounts.get(replica)
        return len(account.live) if account else 0

    def open(self, replica: str, prompt_bytes: int, known_bytes: int) -> Ticket:
        self._number += 1
        uncached = max(0, prompt_bytes - known_bytes) / BYTES_PER_TOKEN
        ticket = Ticket(replica, self._number, uncached, self._rules.decode_cost)
        account = self._accounts[replica]
        account.live[ticket.number] = ticket
        account.since += ticket.prefill + ticket.decode
        self._write(replica, account)
        return ticket

    def answered(self, ticket: Ticket) -> None:
        """The first byte is there, so the prompt is done."""
        account = self._accounts.get(ticket.replica)
        if account is not None and ticket.number in account.live:
            cost, ticket.prefill = ticket.prefill, 0.0
            self._credit(ticket, account, cost)

    def close(self, ticket: Ticket) -> None:
        """However the request ended; more than once has no effect."""
        account = self._accounts.get(ticket.replica)
        if account is None or account.live.pop(ticket.number, None) is not ticket:
            return
        self._credit(ticket, account, ticket.prefill + ticket.decode)

    def report(self, replica: str, tokens: float, number: int) -> None:
        """`tokens`: load in the same unit, of all routers. `number`: when it was asked for."""
        account = self._accounts.get(replica)
        if account is None or number < account.report_number:
            return
        account.reported, account.report_number = max(0.0, tokens), number
        later = (t for t in account.live.values() if t.number > number)
        account.since = sum(t.prefill + t.decode for t in later)
        self._write(replica, account)

    def _credit(self, ticket: Ticket, account: _Account, cost: float) -> None:
        if ticket.number > account.report_number:
            account.since -= cost
        else:
            account.reported = max(0.0, account.reported - cost)
        self._write(ticket.replica, account)

    def _write(self, replica: str, account: _Account) -> None:
        load = account.reported + max(0.0, account.since)
        self._fleet.set_load(replica, load, len(account.live))


def reported_tokens(load: dict[str, object], rules: LoadRules) -> float | None:
    """Of one entry of `/v1/loads`; None when it does not say. Without a count of uncached tokens
    every waiting request is taken for a chunk of prompt.
    """
    running, waiting = load.get("num_running_reqs"), load.get("num_waiting_reqs")
    if not isinstance(running, int | float) or not isinstance(waiting, int | float):
        return None
    uncached = load.get("num_uncached_tokens")
    prompt = uncached if isinstance(uncached, int | float) else waiting * rules.decode_tokens
    return float(prompt) + (running + waiting) * rules.decode_cost
