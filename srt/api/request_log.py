"""The log line of a request, at the level that the operator chose.

    0  route, status, seconds       2  and the first `SHORT_BYTES` of body and answer
    1  and the body without texts   3  and all of them

Texts of users are logged at levels 2 and 3 only. What is kept of a body is what was read and sent,
so a body that was refused by its size is not kept.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field

import orjson
from starlette.types import Message, Receive, Send

from ..log import event

log = logging.getLogger(__name__)

SHORT_BYTES = 2048
TEXTS = frozenset(
    {"text", "prompt", "messages", "input_ids", "input_embeds", "system", "tools", "tokens"}
)


@dataclass(frozen=True, slots=True)
class LogStyle:
    level: int
    is_json: bool


@dataclass(slots=True, eq=False)
class RequestRecord:
    """What one request will be logged as; `receive` and `send` pass on and keep."""

    style: LogStyle
    path: str
    _receive: Receive
    _send: Send
    started_at: float = field(default_factory=time.monotonic)
    request: bytearray = field(default_factory=bytearray)
    response: bytearray = field(default_factory=bytearray)

    async def receive(self) -> Message:
        message = await self._receive()
        if self.style.level > 0:
            self.request += message.get("body", b"")
        return message

    async def send(self, message: Message) -> None:
        if self.style.level > 1:
            self._keep(self.response, message.get("body", b""))
        await self._send(message)

    def write(self, status: int | None) -> None:
        fields: dict[str, object] = {
            "path": self.path,
            "status": status,
            "s": time.monotonic() - self.started_at,
        }
        if self.style.level == 1:
            fields["options"] = _options(bytes(self.request))
        elif self.style.level > 1:
            kept = bytearray()
            self._keep(kept, bytes(self.request))
            fields["request"] = kept.decode(errors="replace")
            fields["response"] = self.response.decode(errors="replace")
        if self.style.is_json:
            log.info("%s", json.dumps({"event": "http_request", **fields}))
        else:
            log.info(event("http_request", fields))

    def _keep(self, kept: bytearray, more: bytes) -> None:
        kept += more if self.style.level > 2 else more[: max(0, SHORT_BYTES - len(kept))]


def _options(body: bytes) -> str:
    """The members of a JSON object that hold no text of the user."""
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(members, dict):
        return ""
    return orjson.dumps({k: v for k, v in members.items() if k not in TEXTS}).decode()
