"""ZeroMQ sockets between our processes: one inbox per process, which anybody may send to.

Every process binds one PULL socket (its inbox) and connects one PUSH socket to each process it
talks to. Messages of one sender arrive in order. Sending never blocks: queues have no limit, since
what is in flight is bounded by `max_queued` and by one step of planning ahead. Nothing is kept for
a dead process: LINGER is 0, except where a last word must still arrive (`linger_ms`).

Addresses are files in a private folder (0700), or ports of 127.0.0.1 with transport "tcp", where
other users of the machine can connect: for debugging only.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import zmq
import zmq.asyncio

from ..errors import ConfigError
from ..messages import Message
from .wire import decode, encode

MAX_PATH_BYTES = 107  # sockaddr_un.sun_path less its NUL


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the inboxes of one replica."""

    launcher: str
    tokenizer: str
    scheduler: str
    workers: tuple[str, ...]


def make_endpoints(transport: str, folder: Path, num_workers: int) -> Endpoints:
    """Addresses for one replica. Raises ConfigError when a socket path would be too long."""
    names = ["launcher", "tokenizer", "scheduler", *(f"worker{r}" for r in range(num_workers))]
    if transport == "tcp":
        addresses = [f"tcp://127.0.0.1:{port}" for port in _free_ports(len(names))]
    else:
        addresses = [f"ipc://{folder / name}" for name in names]
        longest = max(len(os.fsencode(str(folder / name))) for name in names)
        if longest > MAX_PATH_BYTES:
            raise ConfigError(
                f"socket path under {folder} has {longest} bytes, the system allows "
                f"{MAX_PATH_BYTES}: set TMPDIR to a shorter folder or use --ipc-transport tcp"
            )
    return Endpoints(addresses[0], addresses[1], addresses[2], tuple(addresses[3:]))


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all held at once, so that they differ."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            s = held.enter_context(closing(socket.socket()))
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    return ports


class Inbox:
    """The blocking receiving end of a process."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._sock = sock
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # of `_alarm`: its number may be another file's once closed
        self._poller = zmq.Poller()
        self._poller.register(sock, zmq.POLLIN)
        self._poller.register(self._alarm, zmq.POLLIN)

    def recv(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None after `timeout_s` (None waits for ever) or a call of `wake`.
        Raises WireError.
        """
        ready = dict(self._poller.poll(None if timeout_s is None else int(timeout_s * 1000)))
        if self._alarm in ready:
            os.eventfd_read(self._alarm)
        if self._sock not in ready:
            return None
        return decode(self._sock.recv_multipart())

    def wake(self) -> None:
        """For any thread of this process: who waits in `recv`, or does so next, goes on."""
        with self._lock:
            if self._alarm >= 0:
                os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        with self._lock:
            os.close(self._alarm)
            self._alarm = -1
        self._sock.close()

    def drain(self) -> list[Message]:
        """All messages that are there now; does not wait. Raises WireError."""
        messages = []
        while True:
            try:
                messages.append(decode(self._sock.recv_multipart(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """For a poller that waits for other things too."""
        return self._sock


class Outbox:
    """The sending end towards one process."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._sock = sock

    def send(self, message: Message) -> None:
        """Never blocks. Raises WireError for a value that cannot be encoded."""
        self._sock.send_multipart(encode(message), zmq.NOBLOCK)


def send_all(outboxes: tuple[Outbox, ...], message: Message) -> None:
    """Encodes once for all ranks."""
    frames = encode(message)
    for outbox in outboxes:
        outbox._sock.send_multipart(frames, zmq.NOBLOCK)


class AsyncChannel:
    """Both directions for an asyncio process: its own inbox and the peer it sends to."""

    def __init__(self, inbox: zmq.asyncio.Socket, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox

    def send(self, message: Message) -> None:
        """Never blocks. Raises WireError for a value that cannot be encoded."""
        self._outbox.send(message)

    async def recv(self) -> Message:
        """The next message, from any sender. Raises WireError. One reader at a time."""
        return decode(await self._inbox.recv_multipart())


class Hub:
    """Owner of all sockets of a process; closing it closes them. Use as a context manager."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes] | zmq.asyncio.Socket] = []
        self._inboxes: list[Inbox] = []

    def inbox(self, address: str) -> Inbox:
        """Binds `address`. Raises ConfigError when that cannot be done."""
        sock = self._context.socket(zmq.PULL)
        self._bind(sock, address)
        inbox = Inbox(sock)
        self._inboxes.append(inbox)
        return inbox

    def outbox(self, address: str, linger_ms: int = 0) -> Outbox:
        """Connects to `address`, which may be bound later. `linger_ms`: what `close` waits at
        most for messages that are still on their way.
        """
        sock = self._context.socket(zmq.PUSH)
        self._own(sock)
        sock.linger = linger_ms
        sock.connect(address)
        return Outbox(sock)

    def channel(self, own: str, peer: str) -> AsyncChannel:
        """Binds `own` and connects to `peer`; call it where the event loop runs."""
        sock = zmq.asyncio.Context.shadow(self._context).socket(zmq.PULL)
        self._bind(sock, own)
        return AsyncChannel(sock, self.outbox(peer))

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.close()
        for sock in self._sockets:
            sock.close()
        self._context.term()

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _own(self, sock: zmq.Socket[bytes] | zmq.asyncio.Socket) -> None:
        sock.set_hwm(0)
        self._sockets.append(sock)

    def _bind(self, sock: zmq.Socket[bytes] | zmq.asyncio.Socket, address: str) -> None:
        self._own(sock)
        try:
            sock.bind(address)
        except zmq.ZMQError as e:
            raise ConfigError(f"cannot bind {address}: {e.strerror}") from None
