"""The ASGI application for everything that goes to a replica: reads, watches, answers errors.

The client is watched from the moment its request has been read: when it leaves, also before the
first byte, the exchange with the replica is ended at once, which aborts the request there.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from starlette.types import Receive, Scope, Send

from ..srt.errors import Aborted, TooLarge, TreadleError
from ..srt.net.sse import wait_disconnect
from .gate import Gate
from .incoming import Incoming, ReadRules, read_incoming
from .inflight import Flight, Inflight
from .journey import Journey, Parts
from .reply import Reply

log = logging.getLogger(__name__)


class Forwarder:
    def __init__(
        self, parts: Parts, inflight: Inflight, gate: Gate, rules: ReadRules, max_body_bytes: int
    ) -> None:
        self._parts = parts
        self._inflight = inflight
        self._gate = gate
        self._rules = rules
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, scope["path"])
        metrics, began = self._parts.metrics, time.monotonic()
        called = scope["method"], scope["path"]
        metrics.started(*called)
        try:
            body = await read_body(receive, self._max_body_bytes)
            incoming = read_incoming(scope, scope["headers"], body, self._rules)
            await self._serve(incoming, receive, reply)
        except Aborted:
            metrics.client_gone()
        except TreadleError as e:
            await reply.fail(e, [])
        finally:
            metrics.ended(called, reply, time.monotonic() - began)

    async def _serve(self, incoming: Incoming, receive: Receive, reply: Reply) -> None:
        """Raises Aborted when the client is gone."""
        task = asyncio.current_task()
        assert task is not None
        flight = Flight(self._names(incoming), task)
        journey = Journey(self._parts, incoming, flight, reply)
        self._inflight.enter(flight)
        watcher = asyncio.create_task(_watch(receive, flight, reply))
        try:
            await self._run(journey)
        except asyncio.CancelledError:
            if not flight.is_ended:
                raise
            task.uncancel()
            if flight.ended_by is None:
                raise Aborted("the client left before its answer was complete") from None
            await reply.fail(flight.ended_by, journey.own_headers)
        except TreadleError as e:
            await reply.fail(e, journey.own_headers)
        except Exception as e:  # the top of a request
            await reply.fail(internal_error(e), journey.own_headers)
        finally:
            watcher.cancel()
            self._inflight.leave(flight)
            if reply.has_body and not reply.is_complete and not flight.is_client_gone:
                self._parts.metrics.stream_broken()

    async def _run(self, journey: Journey) -> None:
        try:
            await self._gate.enter()
        except TreadleError:
            self._parts.metrics.limited(is_allowed=False)
            raise
        self._parts.metrics.limited(is_allowed=True)
        try:
            await journey.run()
        finally:
            self._gate.leave()

    def _names(self, incoming: Incoming) -> tuple[str, ...]:
        """Ids given in a body are the client's business; ours must differ from all in flight."""
        if incoming.has_own_rid:
            return incoming.rids
        return (self._inflight.free_name(incoming.rids[0]),)


async def _watch(receive: Receive, flight: Flight, reply: Reply) -> None:
    await wait_disconnect(receive)
    if not reply.is_over:
        flight.leave()


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """Raises TooLarge, and Aborted when the client leaves in the middle."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Aborted("the client left while it was sending its request")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"the request body is larger than {max_bytes} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def internal_error(error: Exception) -> TreadleError:
    """Logs a bug; the client learns where to look."""
    error_id = uuid.uuid4().hex
    log.error("internal_error id=%s", error_id, exc_info=error)
    return TreadleError(f"internal error; the log has it under id {error_id}")
