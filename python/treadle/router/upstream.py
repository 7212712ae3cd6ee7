"""The client side of the router: one exchange with a replica, over pooled connections.

Owns which headers travel and what an exception of the HTTP client says of the request: whether the
replica can have begun. Closing an answer that was not read to its end closes the connection, by
which the replica learns that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from types import TracebackType

import aiohttp

from .incoming import Incoming
from .outcomes import Break
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
IDLE_CONNECTION_S = 60.0  # well below what replicas allow, so that they never close one first
READ_BYTES = 1 << 17
Pairs = list[tuple[str, str]]


class Broken(Exception):
    """An exchange that ended without a whole answer."""

    def __init__(self, kind: Break, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Upstream:
    def __init__(
        self, idle_timeout_s: float, connect_timeout_s: float, tls: ssl.SSLContext | bool = True
    ) -> None:
        """Inside the event loop. `tls` False: certificates of replicas are not checked.
        `idle_timeout_s`, between two bytes of a body, is for those who read it: the client's own
        limit would hold for the wait for the first byte too.
        """
        self.idle_timeout_s = idle_timeout_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_CONNECTION_S, ttl_dns_cache=10, ssl=tls
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=READ_BYTES,
        )

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def send(self, replica: Replica, incoming: Incoming, rid: str) -> aiohttp.ClientResponse:
        """The answer, once its headers are there. Raises Broken."""
        headers = request_headers(replica, incoming, rid)
        try:
            return await self._session.request(
                incoming.method,
                replica.url + incoming.target,
                data=incoming.body or None,
                headers=headers,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise Broken(kind_of(e), describe(e)) from None

    async def ask(
        self,
        replica: Replica,
        method: str,
        path: str,
        body: bytes = b"",
        timeout_s: float = 5.0,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of a question of the router's own. Raises Broken."""
        own = {"content-type": "application/json"} if body else {}
        if replica.api_key:
            own["authorization"] = f"Bearer {replica.api_key}"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    replica.url + path,
                    data=body or None,
                    headers={**own, **(headers or {})},
                ) as response,
            ):
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise Broken(kind_of(e), describe(e)) from None


def request_headers(replica: Replica, incoming: Incoming, rid: str) -> Pairs:
    """The client's, with the request's id and the rank that the choice fell on."""
    dropped = NOT_SENT_ON | _named_in_connection(incoming)
    rank = replica.address.rank
    if rank is not None:
        dropped |= {b"x-data-parallel-rank"}
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in incoming.raw_headers
        if name.lower() not in dropped
    ]
    headers.append(("x-rid", rid))
    if "x-request-id" not in incoming.headers:
        headers.append(("x-request-id", rid))
    if rank is not None:
        headers.append(("x-data-parallel-rank", str(rank)))
    return headers


def response_headers(response: aiohttp.ClientResponse) -> Headers:
    """The replica's, as they came, without those that belong to the connection or to us."""
    return [
        (lower, value)
        for name, value in response.raw_headers
        if (lower := name.lower()) not in HOP_BY_HOP and lower not in OWN_ANSWERS
    ]


def kind_of(error: BaseException) -> Break:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Break.NOT_SENT
    if isinstance(error, TimeoutError):
        return Break.TIMEOUT
    return Break.NO_ANSWER


def describe(error: BaseException) -> str:
    """For the log and the client: no addresses."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect ({os.strerror(number) if number else type(error).__name__})"
    if isinstance(error, TimeoutError):
        return "timed out"
    return f"the connection broke ({type(error).__name__})"


def _named_in_connection(incoming: Incoming) -> frozenset[bytes]:
    value = incoming.headers.get("connection")
    if value is None or value.lower() == "keep-alive":
        return frozenset()
    return frozenset(name.strip().lower().encode("latin-1") for name in value.split(",") if name)
