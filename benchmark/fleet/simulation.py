"""The fleet in simulated time: clients, the router's code, replicas, and the death of some.

    send --place--> replica --first token--> --last token--> the turns that waited for it
     ^                 | killed
     '-- again <-------'  before its first token by the router, else by the client

One heap of events; equal inputs and seeds give equal results. A replica's step ends at the time
that it says, and an entry of the heap with another time is stale.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from treadle.router.affinity import Ask
from treadle.router.ledger import BYTES_PER_TOKEN
from treadle.router.policies import PolicyRules

from .clients import Clients
from .replica import Job, Replica, Shape
from .router import Placed, Router
from .tally import Figures, Tally

RESEND_S = 1.0  # until a client sends again what was broken or refused
NUM_PROBES = 3  # that fail, a second apart, until a breaker opens
SAMPLE_S = 10.0  # between looks at how requests are spread


class Kind(IntEnum):
    SEND = 0
    STEP = 1
    LOADS = 2
    KILL = 3
    PROBE = 4
    SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """`kill_share` of the replicas die at `kill_at_s`; 0: none. `load_interval_s`: between polls of
    a replica's load. `names`: addresses, by which sessions are placed. `until_s`: when the
    simulation ends, though turns are still to come. `bytes_per_token`: of requests' bodies.
    """

    names: Sequence[str]
    shape: Shape
    policy: PolicyRules
    seed: int
    kill_share: float = 0.0
    kill_at_s: float = 0.0
    load_interval_s: float = 10.0
    until_s: float = math.inf
    bytes_per_token: float = BYTES_PER_TOKEN


class Simulation:
    def __init__(self, clients: Clients, plan: Plan) -> None:
        self._clients = clients
        self._plan = plan
        self._keys = [clients.key(number) for number in range(len(clients))]
        self._router = Router(plan.names, plan.policy, plan.seed)
        self._replicas = [Replica(plan.shape) for _ in plan.names]
        self._rng = random.Random(plan.seed)
        self._tally = Tally(plan.shape.per_token)
        self._placed: dict[Job, Placed] = {}
        self._homes: dict[int, int] = {}  # of each client, the replica that it was at last
        self._watched: dict[int, int] = {}  # the same when some were killed, until it goes on
        self._dead: set[int] = set()
        self._open = 0  # turns that are still to come
        self._events: list[tuple[float, int, int, int, int]] = []
        self._number = 0
        self.now = 0.0

    def run(self) -> Figures:
        """Until all clients are done, or the time is over. Raises RuntimeError when a request can
        never be served."""
        self._open = sum(len(self._clients.session(n).turns) for n in range(len(self._clients)))
        for client in range(len(self._clients)):
            for at_s, turn in self._clients.first_turns(client):
                self._push(at_s, Kind.SEND, client, turn)
        for number in range(len(self._replicas)):  # evenly spread, as replicas of other starts
            at_s = self._plan.load_interval_s * number / len(self._replicas)
            self._push(at_s, Kind.LOADS, number, 0)
        self._push(SAMPLE_S, Kind.SAMPLE, 0, 0)
        if self._plan.kill_share:
            self._push(self._plan.kill_at_s, Kind.KILL, 0, 0)
        while self._open and self._events[0][0] <= self._plan.until_s:
            self.now, kind, _, first, second = heapq.heappop(self._events)
            self._handle(kind, first, second)
        rows = [replica.total_rows for replica in self._replicas]
        return self._tally.figures(rows, self.now, self._router.lost)

    def _handle(self, kind: int, first: int, second: int) -> None:
        if kind == Kind.STEP:
            if self._replicas[first].ends_at == self.now:
                self._end_step(first)
        elif kind == Kind.SEND:
            self._send(first, second)
        elif kind == Kind.LOADS:
            self._poll(first)
        elif kind == Kind.SAMPLE:
            self._sample()
        elif kind == Kind.KILL:
            self._kill()
        else:
            self._router.probe_failed(first, self.now)

    def _push(self, at_s: float, kind: Kind, first: int, second: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, kind, self._number, first, second))

    def _send(self, client: int, turn: int) -> None:
        asked = self._clients.turn(client, turn)
        ids = self._clients.ids(client, turn)
        self._place(Job(ids, asked.prompt, client, turn, self.now), frozenset())

    def _place(self, job: Job, failed: frozenset[str]) -> None:
        text = job.ids[: job.prompt].tobytes() if self._router.compares else b""
        size = round(job.prompt * self._plan.shape.per_token * self._plan.bytes_per_token)
        ask = Ask(self._keys[job.client], None, size, text, failed)
        placed = self._router.place(ask, self._dead, self.now)
        if placed is None:
            self._push(self.now + RESEND_S, Kind.SEND, job.client, job.turn)
            return
        self._tally.decisions[placed.decision.value] += 1
        self._note_home(job.client, placed.replica)
        replica = self._replicas[placed.replica]
        before = replica.ends_at
        if not replica.arrive(job, self.now):
            raise RuntimeError(f"{len(job.ids)} tokens do not fit the pool")
        self._placed[job] = placed
        if replica.ends_at != before:
            self._push(replica.ends_at, Kind.STEP, placed.replica, 0)

    def _end_step(self, number: int) -> None:
        replica = self._replicas[number]
        first, done = replica.end_step()
        for job in first:
            self._router.answered(self._placed[job], self.now)
            self._tally.answered(job, self._clients.turn(job.client, job.turn))
        for job in done:
            self._router.ended(self._placed.pop(job))
            self._open -= 1
            for at_s, turn in self._clients.next_turns(job.client, job.turn, self.now):
                self._push(at_s, Kind.SEND, job.client, turn)
        if not math.isinf(replica.ends_at):
            self._push(replica.ends_at, Kind.STEP, number, 0)

    def _poll(self, number: int) -> None:
        replica = self._replicas[number]
        if replica.is_dead:
            return
        running = replica.num_running
        waiting = replica.num_requests - running
        self._router.report(number, running, waiting, replica.uncached_tokens)
        self._push(self.now + self._plan.load_interval_s, Kind.LOADS, number, 0)

    def _sample(self) -> None:
        self._tally.sample([r.num_requests for r in self._replicas if not r.is_dead])
        self._push(self.now + SAMPLE_S, Kind.SAMPLE, 0, 0)

    def _kill(self) -> None:
        """At once, with all that is on them; one is always left."""
        total = len(self._replicas)
        count = min(total - 1, max(1, round(self._plan.kill_share * total)))
        self._dead.update(self._rng.sample(range(len(self._replicas)), count))
        self._watched = dict(self._homes)
        for number in sorted(self._dead):
            replica = self._replicas[number]
            replica.is_dead, replica.ends_at = True, math.inf
            for second in range(1, NUM_PROBES + 1):
                self._push(self.now + second, Kind.PROBE, number, 0)
        for number in sorted(self._dead):
            for job in self._replicas[number].jobs():
                self._break(job, number)

    def _break(self, job: Job, number: int) -> None:
        """The connection of a request breaks: before its first byte it is tried elsewhere."""
        self._router.ended(self._placed.pop(job))
        self._router.broke(number, self.now)
        if job.first_at < 0 and self._router.may_retry():
            again = Job(job.ids, job.prompt, job.client, job.turn, job.sent_at)
            self._place(again, frozenset({self._router.name(number)}))
            return
        self._tally.broken += 1
        self._push(self.now + RESEND_S, Kind.SEND, job.client, job.turn)

    def _note_home(self, client: int, number: int) -> None:
        home = self._watched.pop(client, None)
        if home is not None:
            state = "killed" if home in self._dead else "alive"
            self._tally.moved[f"{state}_{'moved' if number != home else 'stayed'}"] += 1
        self._homes[client] = number
