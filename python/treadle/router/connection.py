"""A connection to a replica: exchanges one after another, and the flow of bytes in both directions.

It reads no further while more than `HIGH_BYTES` of an answer wait to be taken. A request is written
at once; whether all of it has left is known from the transport, whose limits are zero: it says so
as soon as it has to keep a byte. An answer may come before that; the connection then serves nobody
else. Bytes or an end that come while no exchange is open close it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

from .answer import Answer, Malformed
from .exchange import Exchange
from .outcomes import Break, Broken

HIGH_BYTES = 1 << 18  # about one read of the loop
Told = Callable[["Connection"], None]


class Connection(asyncio.Protocol):
    def __init__(self, on_free: Told, on_lost: Told) -> None:
        """`on_free`: it may serve another exchange. `on_lost`: never again; called once."""
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._num_waiting_bytes = 0
        self._is_paused = False
        self._is_sending = False

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Usable, and nothing has come that the loop has not told of yet: an end, most likely, to
        which a request would be lost.
        """
        if self._transport is None or not self.is_usable:
            return False
        poller = select.poll()
        poller.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poller.poll(0)

    def send(self, head: bytes, body: bytes, *, is_for_head: bool) -> Exchange:
        """Begins an exchange; none may be open, and the connection must be usable."""
        assert self._exchange is None and self._transport is not None
        self._exchange = exchange = Exchange(self, Answer(is_for_head=is_for_head))
        self._transport.write(head)
        if body:
            self._transport.write(body)
        return exchange

    def taken(self) -> None:
        self._num_waiting_bytes = 0
        if self._is_paused and self._transport is not None and self.is_usable:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """What is not sent yet never will be."""
        self._end(Broken(Break.NO_ANSWER, "the connection was closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of uvloop, which has no such base
        self._transport.set_write_buffer_limits(high=0)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose("closed" if error is None else type(error).__name__)
        self._transport = None
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._is_sending = True

    def resume_writing(self) -> None:
        self._is_sending = False

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.abort()
            return
        answer = exchange.answer
        try:
            answer.feed(data)
        except Malformed as e:
            self._end(Broken(Break.NO_ANSWER, f"the answer is malformed ({e})"))
            return
        if answer.is_whole:
            self._finish(exchange)
        elif answer.pieces:
            self._num_waiting_bytes += len(data)
            if self._num_waiting_bytes > HIGH_BYTES and not self._is_paused:
                assert self._transport is not None
                self._is_paused = True
                self._transport.pause_reading()
        exchange.came()

    def eof_received(self) -> None:
        """The transport closes itself after this, once it has sent what it holds: not worth it."""
        exchange = self._exchange
        if exchange is not None:
            exchange.answer.feed_end()
            if exchange.answer.is_whole:
                self._finish(exchange)
        self._lose("closed")
        self.abort()

    def _finish(self, exchange: Exchange) -> None:
        self._exchange = None
        exchange.ended()
        if exchange.answer.leaves_connection_fit and self.is_usable and not self._is_sending:
            self.taken()
            self._on_free(self)
        else:
            self.abort()

    def _lose(self, reason: str) -> None:
        """What was not sent whole was not begun."""
        exchange = self._exchange
        if exchange is not None:
            is_unsent = self._is_sending and not exchange.status
            kind = Break.NOT_SENT if is_unsent else Break.NO_ANSWER
            self._end(Broken(kind, f"the connection broke ({reason})"))

    def _end(self, error: Broken) -> None:
        exchange, self._exchange = self._exchange, None
        if self._transport is not None:
            self._transport.abort()
        if exchange is not None:
            exchange.answer.stop()
            exchange.ended(error)
