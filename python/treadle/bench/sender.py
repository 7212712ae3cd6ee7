"""Sends requests to one server and times what comes back.

Bytes are kept as they come and parsed after the last one: on few cores the client's own work would
count against the server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
import orjson

from ..client.stream import DONE, EventReader
from .asks import Answer, Ask, Event, Json, Message, Options, Prompt, failed
from .malformed import told
from .wire import checked
from .wires import WIRES

SHOWN = 300  # characters of an answer that is an error


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load. `backend` is a name of `wires.WIRES`."""

    name: str
    url: str
    backend: str
    model: str


class Sender:
    """`began_s`: where the run's clock stands at 0, on `time.perf_counter`."""

    def __init__(self, http: aiohttp.ClientSession, target: Target, options: Options) -> None:
        self.target = target
        self._http = http
        self._wire = WIRES[target.backend]
        self._options = options
        self.began_s = time.perf_counter()

    @property
    def is_chat(self) -> bool:
        return self._wire.is_chat

    def now_s(self) -> float:
        return time.perf_counter() - self.began_s

    async def send(self, ask: Ask, input_len: int) -> Answer:
        """Every failure but one of this program is an answer with `error`. Raises ValueError for a
        prompt that the backend cannot be sent."""
        data = _dumped(self._wire.body(ask, self._options))
        headers = {"Content-Type": "application/json", **dict(ask.headers)}
        if ask.session:
            headers["X-Session-ID"] = ask.session
        sent_s = self.now_s()
        try:
            events = await self._events(data, headers)
            with told("not an answer"):
                said = checked(self._wire.read(events))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return failed(sent_s, input_len, f"{type(error).__name__}: {error}"[:SHOWN])
        except (ValueError, _BadAnswer) as error:
            return failed(sent_s, input_len, str(error)[:SHOWN])
        if not said.arrivals:
            return failed(sent_s, input_len, "an answer without a token")
        return Answer(sent_s, input_len, said)

    async def warm_up(self, text: str, input_len: int, output_len: int) -> None:
        """First touches of weights and buffers. Raises ValueError with what the server says."""
        prompt: Prompt = (Message("user", text),) if self.is_chat else text
        answer = await self.send(Ask(prompt, output_len), input_len)
        if answer.error:
            raise ValueError(f"{self.target.name}: the warm-up request failed: {answer.error}")

    async def _events(self, data: bytes, headers: Mapping[str, str]) -> list[Event]:
        url = self.target.url + self._wire.path
        pieces: list[tuple[float, bytes]] = []
        start = time.perf_counter()
        async with self._http.post(url, data=data, headers=headers) as response:
            async for piece in response.content.iter_any():
                pieces.append((time.perf_counter() - start, piece))
            if response.status != 200:
                text = b"".join(piece for _, piece in pieces)[:SHOWN].decode(errors="replace")
                raise _BadAnswer(f"status {response.status}: {text}")
        if response.content_type == "text/event-stream":
            return _parsed(pieces)
        if not pieces:
            raise _BadAnswer("nothing")
        whole = b"".join(piece for _, piece in pieces)
        return [Event(pieces[-1][0], _json(whole))]


class _BadAnswer(Exception):
    """A refusal, or an answer that is not whole."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not an answer: {what}")


def _dumped(body: Json) -> bytes:
    """Raises ValueError."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"no request can be made of this: {error}") from None


def _parsed(pieces: list[tuple[float, bytes]]) -> list[Event]:
    reader = EventReader()
    events: list[Event] = []
    is_done = False
    for at_s, piece in pieces:
        for data in reader.feed(piece):
            if data == DONE:
                is_done = True
                continue
            event = _json(data)
            if event.get("error"):
                raise _BadAnswer(f"an error event: {data[:SHOWN]}")
            events.append(Event(at_s, event))
            is_done = is_done or event.get("stop") is True  # llama.cpp's last event
    if not is_done:
        raise _BadAnswer("the stream ended early")
    return events


def _json(data: str | bytes) -> Json:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise _BadAnswer(f"no JSON: {data[:SHOWN]!r}") from None
    if not isinstance(found, dict):
        raise _BadAnswer(f"no object: {data[:SHOWN]!r}")
    return found
