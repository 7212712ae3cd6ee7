"""The asynchronous client of the HTTP API: JSON in and out, streams of events, bounded retries.

A request is tried again while nothing of its answer has been delivered: when no connection came
about or it broke, and on 429, 502, 503 and 504, for as long as the retry window lasts. So a server
that restarts in the middle of a run costs time, not the run. A stream that breaks after its first
event is an error: what was delivered cannot be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from .background import LoopThread, background
from .errors import BrokenAnswer, ProgramError, Refused, Unreachable
from .stream import DONE, read_events

Json = Mapping[str, Any]

RETRY_STATUS = frozenset({429, 502, 503, 504})
CONNECT_S = 10.0
KEEP_ALIVE_S = 60.0  # servers keep theirs longer, so ours ends a pooled connection first
BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)


@dataclass(frozen=True, slots=True)
class Retry:
    """For how long after its first failure a request is tried again, and the pauses between:
    doubled each time."""

    window_s: float = 30.0
    first_s: float = 0.1
    longest_s: float = 2.0


class Client:
    """Of one base URL. Its coroutines run on the background loop only."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        verify: bool | str = True,
        timeout_s: float = 600.0,
        retry: Retry | None = None,
        uses_proxies: bool = False,
    ) -> None:
        """`verify`: False for any certificate, a path for one of your own. `timeout_s` bounds the
        silence of a server that has taken a request. `uses_proxies`: those of the environment, for
        which two threads are asked before each request. Raises ProgramError for a URL without a
        scheme."""
        if not base_url.startswith(("http://", "https://")):
            raise ProgramError(f"a URL begins with http:// or https://, got {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._verify = verify
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._uses_proxies = uses_proxies
        self._sessions: dict[LoopThread, aiohttp.ClientSession] = {}  # a forked child has another

    async def get(self, path: str) -> Any:
        """Raises Refused, Unreachable."""
        return await self._whole("GET", path, None, {}, self._retry)

    async def post(
        self,
        path: str,
        body: Json,
        headers: Mapping[str, str] | None = None,
        *,
        is_hint: bool = False,
    ) -> Any:
        """The decoded answer, or its text when it is no JSON. `is_hint`: tried once, for it is not
        worth waiting for. Raises Refused, Unreachable."""
        retry = Retry(window_s=0.0) if is_hint else self._retry
        return await self._whole("POST", path, body, headers or {}, retry)

    async def stream(
        self, path: str, body: Json, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Any]:
        """Decoded events up to `[DONE]`. Raises Refused, also for an error event; Unreachable
        before the first event, BrokenAnswer after it."""
        pauses = _Pauses(self._retry)
        has_begun = False
        while True:
            response = await self._open("POST", path, body, headers or {}, pauses)
            try:
                async with contextlib.aclosing(read_events(response.content.iter_any())) as events:
                    async for data in events:
                        if data == DONE:
                            return
                        has_begun = True
                        yield _event(data)
                broke = "the stream ended without [DONE]"
            except (*BROKEN, TimeoutError) as error:
                broke = f"the stream broke: {error!r}"
            finally:
                response.close()  # a reader that leaves early ends its request on the server
            if has_begun:
                raise BrokenAnswer(f"{self.base_url}{path}: {broke}")
            await pauses.wait(f"{self.base_url}{path}: {broke}")

    async def aclose(self) -> None:
        """The next request opens new connections."""
        session = self._sessions.pop(background(), None)
        if session is not None:
            background().not_at_exit(self.aclose)
            await session.close()

    async def _whole(
        self, method: str, path: str, body: Json | None, headers: Mapping[str, str], retry: Retry
    ) -> Any:
        pauses = _Pauses(retry)
        while True:
            response = await self._open(method, path, body, headers, pauses)
            try:
                return _decoded(await response.read())
            except (*BROKEN, TimeoutError) as error:
                await pauses.wait(f"{self.base_url}{path}: the answer broke off: {error!r}")
            finally:
                response.release()

    async def _open(
        self,
        method: str,
        path: str,
        body: Json | None,
        headers: Mapping[str, str],
        pauses: _Pauses,
    ) -> aiohttp.ClientResponse:
        """The head of a good answer. Raises Refused, Unreachable."""
        data = None if body is None else orjson.dumps(body)
        kind = {"Content-Type": "application/json"}
        while True:
            url = self.base_url + path
            try:
                response = await self._http().request(
                    method, url, data=data, headers={**kind, **headers}
                )
            except (*BROKEN, TimeoutError) as error:
                await pauses.wait(f"{url}: {_reason(error)}")
                continue
            if response.status < 400:
                return response
            refused = await _refusal(response)
            if response.status not in RETRY_STATUS or not await pauses.may_wait():
                raise refused

    def _http(self) -> aiohttp.ClientSession:
        session = self._sessions.get(background())
        if session is None:
            context = ssl.create_default_context(cafile=_cafile(self._verify))
            connector = aiohttp.TCPConnector(
                limit=0,  # the program decides how many branches are in flight
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=context if self._verify else False,
            )
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_S, sock_read=self._timeout_s
            )
            session = self._sessions[background()] = aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                headers=self._headers,
                trust_env=self._uses_proxies,
            )
            background().at_exit(self.aclose)
        return session


class _Pauses:
    """The pauses between the tries of one request."""

    def __init__(self, retry: Retry) -> None:
        self._window_s = retry.window_s
        self._ends: float | None = None  # not before the first failure: an answer may take long
        self._next_s = retry.first_s
        self._longest_s = retry.longest_s

    async def may_wait(self) -> bool:
        """False when the window is over; otherwise after the pause."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self._window_s
        if now + self._next_s > self._ends:
            return False
        await asyncio.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return True

    async def wait(self, what: str) -> None:
        """Raises Unreachable when the window is over."""
        if not await self.may_wait():
            raise Unreachable(what)


def _cafile(verify: bool | str) -> str | None:
    return verify if isinstance(verify, str) else None


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def _event(data: str) -> Any:
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise BrokenAnswer(f"an event that is no JSON: {data[:200]}") from None
    if isinstance(event, dict) and event.get("error"):
        raise _refused(500, event)
    return event


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode(errors="replace")


async def _refusal(response: aiohttp.ClientResponse) -> Refused:
    try:
        body = _decoded(await response.read())
    except (*BROKEN, TimeoutError):
        body = ""
    finally:
        response.release()
    return _refused(response.status, body)


def _refused(status: int, body: Any) -> Refused:
    """The dialects put message and param at the top, or below `error`."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return Refused(status, str(error)[:500] or "no reason given")
    code = error.get("code")
    param = error.get("param")
    status = code if isinstance(code, int) and code >= 400 else status
    return Refused(status, str(error.get("message", "")), param if param else None)
