"""A server that answers everything after a fixed time and computes nothing, for measuring clients:
`python -m benchmark.serving.slow_completions PORT_FILE DELAY_S`.

    POST /tokenize             three ids for one text
    POST /generate             a short text with its meta_info; none for no new tokens, at once
    POST /v1/chat/completions  a call of `step` in the first turn with tools, then an answer

A plain asyncio protocol on uvloop, so that thousands of waiting requests cost it a timer each.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import cast

import orjson
import uvloop

META = {"id": "x", "prompt_tokens": 100, "completion_tokens": 4, "cached_tokens": 96,
        "replayed_tokens": 0, "finish_reason": {"type": "stop"}}  # fmt: skip
USAGE = {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104,
         "prompt_tokens_details": {"cached_tokens": 96, "replayed_tokens": 0}}  # fmt: skip
CALL = {"id": "c1", "type": "function", "function": {"name": "step", "arguments": '{"n": 1}'}}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)


def chat(message: dict[str, object], finish: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return orjson.dumps({"choices": [choice], "usage": USAGE})


TOKENS = orjson.dumps({"tokens": [[1, 2, 3]]})
TEXT = orjson.dumps({"text": " thread", "output_ids": [1, 2, 3, 4], "meta_info": META})
ANSWER = chat({"content": "done"}, "stop")
CALLS = chat({"content": None, "tool_calls": [CALL]}, "tool_calls")


class Replica(asyncio.Protocol):
    delay_s = 0.0

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of uvloop, which has no such base

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._data, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._data) < whole:
                return
            self._answer(self._data[:end], self._data[end + 4 : whole])
            self._data = self._data[whole:]

    def _answer(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/tokenize" or b'"max_new_tokens":0' in body:
            self._write(TOKENS if path == b"/tokenize" else TEXT)
            return
        answer = TEXT
        if path == b"/v1/chat/completions":
            answer = CALLS if b'"tools"' in body and b'"tool_call_id"' not in body else ANSWER
        asyncio.get_running_loop().call_later(self.delay_s, self._write, answer)

    def _write(self, body: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(HEAD % len(body) + body)


async def serve(port_file: Path) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Replica, "127.0.0.1", 0, backlog=4096)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    Replica.delay_s = float(sys.argv[2])
    uvloop.run(serve(Path(sys.argv[1])))
