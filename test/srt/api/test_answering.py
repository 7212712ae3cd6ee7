"""Disconnects, errors before and inside streams, and the loss of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from test.serving import EOS, Bench, FakeEngine, hold, parse_events, serving
from treadle.srt.lifecycle import Failed
from treadle.srt.messages import Finish

HI = [{"role": "user", "content": "hi"}]
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/completions", {"prompt": "a"}),
    ("/generate", {"text": "a"}),
]


class RawClient:
    """One request by hand: `gone` is the client's disconnect, `sent` what it has received."""

    def __init__(self, bench: Bench, path: str, body: dict[str, Any]) -> None:
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._body: bytes | None = orjson.dumps(body)
        self.task = asyncio.create_task(self._call(bench.app, path))

    @property
    def text(self) -> str:
        return b"".join(m["body"] for m in self.sent if m["type"].endswith("body")).decode()

    async def until(self, is_true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not is_true():
                await asyncio.sleep(0)

    async def _call(self, app: Callable[..., Awaitable[None]], path: str) -> None:
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [(b"content-type", b"application/json")],
            "root_path": "", "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("when", ["queued", "running"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_disconnect_aborts_at_once(path: str, body: dict[str, Any], stream: bool, when: str):
    async with serving(FakeEngine(script=hold)) as bench:
        client = RawClient(bench, path, {**body, "stream": stream, "rid": "r", "n": 1})
        await client.until(lambda: bench.engine.live)
        if when == "running":
            bench.engine.emit("r", b"he")
            if stream:
                await client.until(lambda: "he" in client.text)
        client.gone.set()
        await client.task
        assert [(a.rid, a.reason) for a in bench.engine.aborts] == [("r", "client")]
        assert bench.frontend.num_live == 0
        await client.until(lambda: bench.frontend.num_ended == 0)
        if not stream or when == "queued":
            assert client.sent == []


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnect_aborts_every_choice_that_still_runs(stream: bool):
    async with serving(FakeEngine(script=hold)) as bench:
        body = {"messages": HI, "n": 3, "rid": "r", "stream": stream}
        client = RawClient(bench, "/v1/chat/completions", body)
        await client.until(lambda: len(bench.engine.live) == 3)
        bench.engine.emit("r-1", [EOS], Finish("stop", matched=EOS))
        await client.until(lambda: bench.frontend.num_live == 2)
        client.gone.set()
        await client.task
        assert sorted(a.rid for a in bench.engine.aborts) == ["r-0", "r-2"]


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_loss_of_the_engine_before_the_first_token_is_503(path: str, body: dict[str, Any]):
    for stream in (False, True):
        async with serving(FakeEngine(script=hold)) as bench:
            asking = asyncio.create_task(bench.post(path, {**body, "stream": stream}))
            while not bench.engine.live:
                await asyncio.sleep(0)
            bench.engine.put(Failed("worker", 0, "killed"))
            response = await asking
            assert response.status_code == 503
            assert "killed" in response.json()["error"]["message"]
            assert (await bench.post(path, body)).status_code == 503
            assert (await bench.client.get("/health")).status_code == 503


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_loss_of_the_engine_inside_a_stream_is_an_error_event(
    path: str, body: dict[str, Any]
):
    async with serving(FakeEngine(script=hold)) as bench:
        client = RawClient(bench, path, {**body, "stream": True, "rid": "r"})
        await client.until(lambda: bench.engine.live)
        bench.engine.emit("r", b"he")
        await client.until(lambda: "he" in client.text)
        bench.engine.put(Failed("scheduler", 0, "gone"))
        await client.task
        *_, error, done, rest = client.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        body = orjson.loads(error.removeprefix("data: "))
        assert body["error"]["type"] == "ServiceUnavailableError"
        assert "gone" in body["error"]["message"]
        assert bench.frontend.num_live == 0


async def test_failure_of_one_choice_ends_the_request_and_the_other_choices():
    async with serving(FakeEngine(script=hold)) as bench:
        body = {"prompt": ["a", "b"], "rid": "r"}
        asking = asyncio.create_task(bench.post("/v1/completions", body))
        while len(bench.engine.live) < 2:
            await asyncio.sleep(0)
        bench.engine.emit("r-0", [], Finish("abort", message="no pages", status=503))
        response = await asking
        assert response.status_code == 503
        assert [a.rid for a in bench.engine.aborts] == ["r-1"]


async def test_bug_inside_a_stream_becomes_an_error_event_without_a_trace(
    monkeypatch: pytest.MonkeyPatch,
):
    async with serving(FakeEngine(script=hold)) as bench:
        client = RawClient(bench, "/generate", {"text": "a", "stream": True, "rid": "r"})
        await client.until(lambda: bench.engine.live)
        bench.engine.emit("r", b"he")
        await client.until(lambda: "he" in client.text)

        def broken(*_: object) -> bytes:
            raise ZeroDivisionError("secret detail")

        monkeypatch.setattr("treadle.srt.api.native_events.NativeEvents.write", broken)
        bench.engine.emit("r", b"l")
        await client.task
        assert "secret" not in client.text
        assert client.text.endswith("data: [DONE]\n\n")
        assert "InternalServerError" in client.text
        assert [a.reason for a in bench.engine.aborts] == ["client"]


async def test_streams_forbid_buffering_and_caching(bench: Bench):
    response = await bench.post("/generate", {"text": "a", "stream": True}, x_request_id="me")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"] == "me"


async def test_events_that_wait_together_share_a_write_and_come_in_order():
    async with serving(FakeEngine(script=hold)) as bench:
        client = RawClient(bench, "/v1/completions", {"prompt": "a", "stream": True, "rid": "r"})
        await client.until(lambda: bench.engine.live)
        bench.engine.emit("r", b"h")
        await client.until(lambda: "h" in client.text)
        num_writes = len(client.sent)
        for byte in b"ello":
            bench.engine.emit("r", bytes([byte]))
        bench.engine.emit("r", [], Finish("length"))
        await client.task
        texts = [e["choices"][0]["text"] for e in parse_events(client.text)]
        assert "".join(texts) == "hello"
        assert len(texts) == 6
        assert len(client.sent) < num_writes + 6


async def test_tokens_before_a_failure_reach_the_client():
    async with serving(FakeEngine(script=hold)) as bench:
        client = RawClient(bench, "/v1/completions", {"prompt": "a", "stream": True, "rid": "r"})
        await client.until(lambda: bench.engine.live)
        bench.engine.emit("r", b"h")
        await client.until(lambda: "h" in client.text)
        bench.engine.emit("r", b"e")
        bench.engine.emit("r", b"y")
        bench.engine.put(Failed("worker", 0, "it died"))
        await client.task
        events = parse_events(client.text)
        assert "".join(e["choices"][0]["text"] for e in events[:-1]) == "hey"
        assert "it died" in events[-1]["error"]["message"]
