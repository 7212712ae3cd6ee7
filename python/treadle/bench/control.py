"""What a run asks of a server beside generating: is it there, what does it serve, empty your cache.

Routes that a server lacks are passed over where the run can do without.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import aiohttp
import orjson

from .asks import Json
from .sender import Target
from .wires import BY_OWNER, WIRES

POLL_S = 0.2
QUESTION_S = 300.0  # longer than a loaded server takes to tell what it is
TOKENIZE = (("prompt", "add_special_tokens"), ("content", "add_special"))  # fields by dialect


class Unready(Exception):
    """A server that does not answer, or not as is needed; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Control:
    http: aiohttp.ClientSession
    url: str

    async def find(self, name: str, backend: str, model: str, timeout_s: float) -> Target:
        """Waits for `/v1/models`; empty `backend` and `model` are filled with what it says. Raises
        Unready."""
        card = await self._card(timeout_s)
        backend = backend or BY_OWNER.get(str(card.get("owned_by")), "openai")
        if backend not in WIRES:
            raise Unready(f"backend {backend!r}: there are {', '.join(WIRES)}")
        return Target(name or self.url, self.url, backend, model or str(card.get("id", "")))

    async def command(self, path: str, body: Json | None = None) -> None:
        """Raises Unready where the server refuses or has no such route."""
        status, text = await self._ask("POST", path, body or {}, None)
        if status != 200:
            raise Unready(
                f"{self.url}{path}: status {status}: {text[:200].decode(errors='replace')}"
            )

    async def server_info(self) -> Json | None:
        """None where there is no such route."""
        for path in ("/server_info", "/get_server_info"):
            status, text = await self._ask("GET", path)
            if status == 200:
                return _object(text)
        return None

    async def tokenize(self, text: str, *, add_special: bool) -> list[int] | None:
        """Ids by the server's own tokenizer; None where it does not tell."""
        for text_field, special_field in TOKENIZE:
            body = {text_field: text, special_field: add_special}
            status, answer = await self._ask("POST", "/tokenize", body)
            found = (_object(answer) or {}).get("tokens") if status == 200 else None
            if found or (found is not None and not text):
                if not isinstance(found, list) or any(type(token) is not int for token in found):
                    raise Unready(f"{self.url}/tokenize: no list of ids: {answer[:80]!r}")
                return found
        return None

    async def _card(self, timeout_s: float) -> Json:
        """The first model's. Waits for a server that is starting."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(POLL_S, deadline - time.monotonic())
            status, text = await self._ask("GET", "/v1/models", timeout_s=left_s)
            if status == 200:
                cards = (_object(text) or {}).get("data") or [{}]
                if not isinstance(cards, list) or not isinstance(cards[0], dict):
                    raise Unready(f"{self.url}/v1/models: no list of models: {text[:80]!r}")
                return cards[0]
            if time.monotonic() > deadline:
                raise Unready(f"{self.url}/v1/models: no answer in {timeout_s:g} s ({status})")
            await asyncio.sleep(POLL_S)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        timeout_s: float | None = QUESTION_S,
    ) -> tuple[int, bytes]:
        """Status 0: no connection, or no answer in time."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"} if data else {}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self.http.request(method, self.url + path, data=data, headers=headers) as response,
            ):
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, b""


def _object(text: bytes) -> Json | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
