"""New connections: names, addresses one after another, TLS, within one time limit.

A name's addresses are kept for `NAME_S`, the one that answered first. Each address has an equal
share of the time that is left, so that one that is silent does not hide those behind it. A host
that vanishes says nothing at all: the system asks after it, so that who waits for it is told.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from .connection import Connection
from .origin import Origin
from .outcomes import Break, Broken

NAME_S = 10.0
MAX_NAMES = 4096
VANISHED_S = 60  # after which a host that answers no probe of the system is gone
_PROBES = (
    ("TCP_KEEPIDLE", VANISHED_S // 2),
    ("TCP_KEEPINTVL", VANISHED_S // 6),
    ("TCP_KEEPCNT", 3),
)
Addresses = list[str]


class Dialer:
    def __init__(self, timeout_s: float, tls: ssl.SSLContext | bool) -> None:
        """`tls` False: certificates are not checked."""
        self._timeout_s = timeout_s
        self._tls = tls
        self._names: dict[str, tuple[float, Addresses]] = {}  # with the time until which they hold

    async def connect(self, origin: Origin, make: Callable[[], Connection]) -> Connection:
        """Raises Broken: nothing was sent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        error: OSError | ValueError = TimeoutError()
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._addresses(origin)
        except (OSError, ValueError) as e:  # a name may be one that cannot be asked for
            raise Broken(Break.NOT_SENT, describe(e)) from None
        for index, address in enumerate(list(addresses)):  # others sort them
            share_s = (deadline - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share_s):
                    connection = await self._open(origin, address, make)
            except (OSError, ValueError) as e:
                error = e
                continue
            addresses.sort(key=lambda other: other != address)
            return connection
        self._names.pop(origin.host, None)
        raise Broken(Break.NOT_SENT, describe(error))

    async def _open(
        self, origin: Origin, address: str, make: Callable[[], Connection]
    ) -> Connection:
        """Raises OSError, ValueError."""
        loop = asyncio.get_running_loop()
        made = make()
        tls = self._context() if origin.is_tls else None
        name = origin.host.rstrip(".") if origin.is_tls else None
        try:
            transport, _ = await loop.create_connection(
                lambda: made, address, origin.port, ssl=tls, server_hostname=name
            )
            if not made.is_usable:
                raise ConnectionResetError
            _probe_host(transport.get_extra_info("socket"))
        except BaseException:
            made.abort()
            raise
        return made

    async def _addresses(self, origin: Origin) -> Addresses:
        """Raises OSError, ValueError."""
        loop = asyncio.get_running_loop()
        known = self._names.get(origin.host)
        if known is not None and loop.time() < known[0]:
            return known[1]
        found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        if known is not None:
            addresses.sort(key=lambda address: address != known[1][0])
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        self._names[origin.host] = (loop.time() + NAME_S, addresses)
        return addresses

    def _context(self) -> ssl.SSLContext:
        if isinstance(self._tls, bool):
            context = ssl.create_default_context()
            if not self._tls:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            self._tls = context
        return self._tls


def _probe_host(sock: socket.socket) -> None:
    """Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        option = getattr(socket, name, None)  # not every system has all
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def describe(error: OSError | ValueError) -> str:
    """For the log and the client: no addresses."""
    if isinstance(error, TimeoutError):
        return "cannot connect (timed out)"
    reason = type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | socket.gaierror):
        reason = os.strerror(error.errno) if error.errno else reason
    return f"cannot connect ({reason})"
