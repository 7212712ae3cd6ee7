"""The client side of the router: one exchange with a replica, over pooled connections.

Owns which headers travel, and that what leaves is one request: no header and no target breaks a
line. Bytes pass as they come: no redirects, no cookies, no decompression. A question without effect
(GET, HEAD) that was put to an idle connection whose replica was just then closing it is put once
more over a new one; for all else what happened is told, and the table of retries decides.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from functools import lru_cache
from types import TracebackType

from .dialer import Dialer
from .exchange import Exchange
from .incoming import Incoming
from .origin import Origin, quoted
from .outcomes import Break, Broken
from .pool import Pool
from .replicas import Replica
from .reply import Headers

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_SENT_ON = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-rid"}
OWN_ANSWERS = frozenset({b"cache-control", b"x-accel-buffering", b"date", b"server"})
NOT_PASSED_ON = HOP_BY_HOP | OWN_ANSWERS
WITHOUT_ANY_BODY = frozenset({204, 304})
WITHOUT_EFFECT = frozenset({"GET", "HEAD"})
WITHOUT_BODY = WITHOUT_EFFECT | {"DELETE", "OPTIONS", "TRACE"}
JOINED_BYTES = 1 << 14  # a longer body is not copied behind its head
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")


class Upstream:
    def __init__(
        self, idle_timeout_s: float, connect_timeout_s: float, tls: ssl.SSLContext | bool = True
    ) -> None:
        """`tls` False: certificates of replicas are not checked. `idle_timeout_s`, between two
        bytes of a body, is for those who read it.
        """
        self.idle_timeout_s = idle_timeout_s
        self.pool = Pool(Dialer(connect_timeout_s, tls))

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.pool.close()

    async def send(self, replica: Replica, incoming: Incoming, rid: str) -> Exchange:
        """Its answer's headers are there; whoever gets it closes it. Raises Broken."""
        headers = request_headers(replica, incoming, rid)
        return await self._exchange(
            replica, incoming.method, incoming.target, headers, incoming.body
        )

    async def ask(
        self,
        replica: Replica,
        method: str,
        path: str,
        body: bytes = b"",
        timeout_s: float = 5.0,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of a question of the router's own. `headers` are a client's, and go
        before the replica's key. Raises Broken.
        """
        own: dict[bytes, bytes] = {b"content-type": b"application/json"} if body else {}
        if replica.api_key:
            own[b"authorization"] = f"Bearer {replica.api_key}".encode()
        own |= {name.encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
        try:
            async with asyncio.timeout(timeout_s):
                exchange = await self._exchange(
                    replica, method, quoted(path), list(own.items()), body
                )
                try:
                    return exchange.status, await exchange.read_all()
                finally:
                    exchange.close()
        except TimeoutError:
            raise Broken(Break.TIMEOUT, "timed out") from None

    async def _exchange(
        self, replica: Replica, method: str, target: str, headers: Headers, body: bytes
    ) -> Exchange:
        """Raises Broken."""
        try:
            origin = origin_of(replica.url)
            head = request_head(origin, method, target, headers, body)
        except ValueError as e:
            raise Broken(Break.NOT_SENT, str(e)) from None
        if len(body) <= JOINED_BYTES:
            head, body = head + body, b""
        is_for_head = method == "HEAD"
        connection = self.pool.take(origin)
        if connection is not None:
            try:
                return await _answered(connection.send(head, body, is_for_head=is_for_head))
            except Broken:
                if method not in WITHOUT_EFFECT:
                    raise
        connection = await self.pool.connect(origin)
        return await _answered(connection.send(head, body, is_for_head=is_for_head))


async def _answered(exchange: Exchange) -> Exchange:
    """Raises Broken."""
    try:
        await exchange.head()
    except BaseException:
        exchange.close()
        raise
    return exchange


@lru_cache(maxsize=4096)
def origin_of(url: str) -> Origin:
    """Raises ValueError."""
    try:
        return Origin.parse(url)
    except ValueError:
        raise ValueError("its address is none") from None


def request_head(origin: Origin, method: str, target: str, headers: Headers, body: bytes) -> bytes:
    """All of a request before its body. Raises ValueError."""
    first = f"{method} {origin.prefix}{target} HTTP/1.1\r\nhost: ".encode("latin-1")
    lines = [first + origin.authority, *(name + b": " + value for name, value in headers)]
    if body or method not in WITHOUT_BODY:
        lines.append(b"content-length: %d" % len(body))
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    num_breaks = len(lines) + 2  # `host` is in the first line
    if head.count(b"\n") != num_breaks or head.count(b"\r") != num_breaks:
        raise ValueError("a header breaks its line")
    return head


def header_value(text: str) -> bytes:
    """What a header can say of it: a body may hold any name for its request."""
    return _CONTROLS.sub(b"?", text.encode("latin-1", "replace"))


def request_headers(replica: Replica, incoming: Incoming, rid: str) -> Headers:
    """The client's, with the request's id and the rank that the choice fell on."""
    dropped = NOT_SENT_ON | _named(incoming.headers.get("connection"))
    rank = replica.address.rank
    if rank is not None:
        dropped |= {b"x-data-parallel-rank"}
    headers = [pair for pair in incoming.raw_headers if pair[0].lower() not in dropped]
    value = header_value(rid)
    headers.append((b"x-rid", value))
    if "x-request-id" not in incoming.headers:
        headers.append((b"x-request-id", value))
    if rank is not None:
        headers.append((b"x-data-parallel-rank", b"%d" % rank))
    return headers


def response_headers(exchange: Exchange) -> Headers:
    """The replica's, as they came, without those that belong to the connection or to us, and
    without the length of a body that an answer of this status does not have.
    """
    dropped = NOT_PASSED_ON | _named(exchange.header("connection"))
    if exchange.status in WITHOUT_ANY_BODY:
        dropped |= {b"content-length"}
    return [pair for pair in exchange.headers if pair[0] not in dropped]


def _named(connection: str | None) -> frozenset[bytes]:
    """Headers that the header `connection` says are for the next hop only."""
    if connection is None or connection.lower() in ("keep-alive", "close"):
        return frozenset()
    names = connection.lower().split(",")
    return frozenset(name.strip().encode("latin-1") for name in names)
