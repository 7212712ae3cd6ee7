"""One request's way: choose a replica, exchange, perhaps once more elsewhere, pass bytes on.

Bytes go through as they come, under the back-pressure of the client. A request is tried again only
before any byte of a body was passed on, by the table in `outcomes.py`, within one deadline and the
retry budget. However it ends, the load that was counted for it is taken back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import orjson

from ..srt.errors import BadRequest, TreadleError
from .affinity import Ask, Choice, Decision, Policy
from .errors import NoReplica, SessionLost, UpstreamBroken, UpstreamTimeout
from .exchange import Exchange
from .incoming import Incoming
from .inflight import Flight
from .ledger import Ticket
from .metrics import RouterMetrics
from .outcomes import (
    NOT_ADMITTED,
    Again,
    Break,
    Broken,
    Evidence,
    RetryBudget,
    after_break,
    after_status,
    back_off,
    evidence_of,
)
from .replicas import Replica, Replicas
from .reply import BrokenAnswer, Headers, Reply
from .sessions import ServerSessions
from .upstream import Upstream, header_value, response_headers

ABORT_TIMEOUT_S = 2.0
TARGET = "x-smg-target-worker"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`deadline_s`: from arrival to the first byte of a body, over all attempts."""

    max_attempts: int = 2
    deadline_s: float = 1800.0
    back_off_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Parts:
    """What all requests share."""

    replicas: Replicas
    policy: Policy
    upstream: Upstream
    sessions: ServerSessions
    budget: RetryBudget
    metrics: RouterMetrics
    retry: RetryRules
    rng: random.Random


class Journey:
    def __init__(self, parts: Parts, incoming: Incoming, flight: Flight, reply: Reply) -> None:
        self._parts = parts
        self._incoming = incoming
        self._flight = flight
        self._reply = reply
        self._began = time.monotonic()
        self._failed: frozenset[str] = frozenset()
        self._busy: frozenset[str] = frozenset()
        self._attempt = 0
        self.own_headers: Headers = [(b"x-rid", header_value(self._rid))]

    @property
    def _rid(self) -> str:
        return self._flight.rids[0]

    async def run(self) -> None:
        """Raises TreadleError when nothing was passed on; other ends are the reply's."""
        self._parts.budget.arrived()
        while True:
            self._attempt += 1
            choice, replica = self._choose()
            self._label(choice, replica)
            again = await self._try(choice, replica)
            if again is Again.NO:
                return
            await self._prepare(again, replica)

    def _choose(self) -> tuple[Choice, Replica]:
        parts, incoming = self._parts, self._incoming
        choice = self._ordered()
        if choice is None:
            ask = Ask(
                incoming.keys.key,
                incoming.keys.parent,
                len(incoming.body),
                incoming.text,
                self._failed,
                self._busy,
            )
            choice = parts.policy.choose(ask, parts.replicas.fleet, time.monotonic())
        replica = None if choice is None else parts.replicas.get(choice.replica)
        if choice is None or replica is None:
            raise NoReplica("no replica is ready; try again later")
        return choice, replica

    def _ordered(self) -> Choice | None:
        """The replica that the request demands. Raises SessionLost, BadRequest, NoReplica."""
        parts = self._parts
        if self._incoming.session and self._incoming.path != "/open_session":
            name = parts.sessions.replica_of(self._incoming.session)
            if name is None or parts.replicas.get(name) is None:
                message = f"session {self._incoming.session!r} is not known here; open it anew"
                raise SessionLost(message, param="session_params.id", code="session_lost")
            return Choice(name, Decision.PINNED)
        target = self._incoming.headers.get(TARGET)
        if target is None:
            return None
        found = next((r for r in parts.replicas if target in (r.name, r.id)), None)
        if found is None:
            raise BadRequest(f"there is no worker {target!r}", param=TARGET)
        if not parts.replicas.fleet.is_eligible(found.name):
            raise NoReplica(f"worker {target!r} is {found.life.state.value}")
        return Choice(found.name, Decision.PINNED)

    def _label(self, choice: Choice, replica: Replica) -> None:
        self._parts.metrics.chosen(replica.name, choice.decision)
        self.own_headers = [
            (b"x-router-replica", replica.name.encode()),
            (b"x-router-decision", choice.decision.value.encode()),
            (b"x-worker-id", replica.id.encode()),
            (b"x-rid", header_value(self._rid)),
        ]

    async def _try(self, choice: Choice, replica: Replica) -> Again:
        ledger = self._parts.replicas.ledger
        ticket = ledger.open(replica.name, len(self._incoming.body), choice.known_bytes)
        self._flight.replica = replica.name
        try:
            return await self._exchange(replica, ticket)
        except Broken as e:
            return await self._broken(e, replica)
        finally:
            self._flight.replica = ""
            ledger.close(ticket)

    async def _exchange(self, replica: Replica, ticket: Ticket) -> Again:
        sending = self._parts.upstream.send(replica, self._incoming, self._rid)
        response = await _within(self._left_s, sending)
        try:
            status = response.status
            was_admitted = response.header(NOT_ADMITTED) is None
            again = after_status(
                status, was_admitted=was_admitted, is_repeatable=self._incoming.is_repeatable
            )
            self._note(replica, evidence_of(status))
            if not was_admitted:
                replica.wants_probe = True
            if again is not Again.NO and self._may_retry(again, replica):
                return again
            is_stream = response.content_type == "text/event-stream"
            await self._reply.start(status, self._headers(response), is_stream=is_stream)
            await self._pass_on(response, ticket)
        except BrokenAnswer as e:
            raise Broken(Break.MID_BODY, str(e)) from None
        finally:
            response.close()
        self._parts.metrics.answered(replica.name, status)
        return Again.NO

    @property
    def _left_s(self) -> float:
        """Until the first byte of a body is overdue."""
        return self._began + self._parts.retry.deadline_s - time.monotonic()

    def _headers(self, response: Exchange) -> Headers:
        headers = response_headers(response)
        headers += self.own_headers
        headers += [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        if response.header("x-request-id") is None:
            headers.append((b"x-request-id", header_value(self._rid)))
        return headers

    async def _pass_on(self, response: Exchange, ticket: Ticket) -> None:
        """Raises Broken."""
        idle_s = self._parts.upstream.idle_timeout_s
        data = await _within(self._left_s, response.read())
        self._parts.replicas.ledger.answered(ticket)
        self._parts.metrics.first_byte(time.monotonic() - self._began)
        gathered = await self._maybe_session(response, data)
        while not response.is_read:
            await self._reply.write(gathered)
            gathered = await _within(idle_s, response.read())
        await self._reply.end(gathered)

    async def _maybe_session(self, response: Exchange, data: bytes) -> bytes:
        """Learns of opened and closed server-side sessions; gives the bytes read so far. Raises
        Broken.
        """
        path, sessions = self._incoming.path, self._parts.sessions
        if self._incoming.session is None or response.status != 200:
            return data
        if path == "/close_session":
            sessions.closed(self._incoming.session)
        elif path == "/open_session":
            data += await _within(self._parts.upstream.idle_timeout_s, response.read_all())
            sessions.opened(opened_name(data) or self._incoming.session, self._flight.replica)
        return data

    def _note(self, replica: Replica, evidence: Evidence) -> None:
        self._parts.replicas.note(replica.name, evidence, time.monotonic())

    async def _broken(self, error: Broken, replica: Replica) -> Again:
        if self._reply.has_body:
            error = Broken(Break.MID_BODY, error.reason)
        self._note(replica, Evidence.FAILURE)
        replica.wants_probe = True
        self._parts.metrics.broke(replica.name, error.kind)
        again = after_break(error.kind, is_repeatable=self._incoming.is_repeatable)
        if again is not Again.NO and self._may_retry(again, replica):
            return again
        if self._incoming.session and self._incoming.path != "/open_session":
            self._parts.sessions.closed(self._incoming.session)
        await self._reply.fail(self._error(error), self.own_headers)
        return Again.NO

    def _error(self, error: Broken) -> TreadleError:
        if error.kind is Break.TIMEOUT:
            return UpstreamTimeout(f"the replica did not answer: {error.reason}")
        if error.kind is Break.MID_BODY:
            return UpstreamBroken(f"the answer broke off: {error.reason}", code="stream_broken")
        return UpstreamBroken(f"the replica did not answer: {error.reason}")

    def _may_retry(self, again: Again, replica: Replica) -> bool:
        """Whether there is a second attempt; it is counted then."""
        parts, tried = self._parts, {*self._failed, *self._busy, replica.name}
        if self._flight.is_ended:
            return False
        if self._attempt >= parts.retry.max_attempts:
            parts.metrics.exhausted(replica.name)
            return False
        if time.monotonic() - self._began >= parts.retry.deadline_s:
            return False
        if TARGET in self._incoming.headers or not parts.replicas.fleet.eligible(tried):
            return False
        if not parts.budget.take():
            return False
        if again is Again.BUSY:
            self._busy |= {replica.name}
        else:
            self._failed |= {replica.name}
        parts.metrics.retried(replica.name, again)
        return True

    async def _prepare(self, again: Again, replica: Replica) -> None:
        parts = self._parts
        if again is Again.ABORT_FIRST:
            await self._abort_at(replica)
        elif again is Again.BUSY:
            seconds = back_off(self._attempt, parts.retry.back_off_s, parts.rng.random())
            parts.metrics.waited(seconds)
            await asyncio.sleep(seconds)

    async def _abort_at(self, replica: Replica) -> None:
        """So that nobody generates for a request that goes on elsewhere."""
        body = orjson.dumps({"rid": self._rid})
        try:
            await self._parts.upstream.ask(
                replica, "POST", "/abort_request", body, ABORT_TIMEOUT_S, self._authorization()
            )
        except Broken:
            return  # it is gone, and the request with it

    def _authorization(self) -> dict[str, str]:
        """The client's own key: it may end its own request."""
        names = ("authorization", "x-api-key")
        found = {name: self._incoming.headers.get(name, "") for name in names}
        return {name: value for name, value in found.items() if value}


async def _within(limit_s: float, doing: Awaitable[T]) -> T:
    """Raises Broken."""
    try:
        async with asyncio.timeout(limit_s):
            return await doing
    except TimeoutError:
        raise Broken(Break.TIMEOUT, "timed out") from None


def opened_name(data: bytes) -> str:
    """The session's id in an answer of `/open_session`, which is a JSON string or an object."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(found, dict):
        found = found.get("session_id")
    return found if isinstance(found, str) else ""
