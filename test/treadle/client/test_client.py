"""The HTTP client against a server in the test: answers, refusals, retries, streams."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from aiohttp import web

from test.treadle.client.http_server import Asked, HttpServer, events, sse
from treadle.client.background import background
from treadle.client.client import Client, Retry
from treadle.client.errors import BrokenAnswer, Refused, Unreachable

SHORT = Retry(window_s=0.1, first_s=0.01, longest_s=0.02)  # for what never comes right
LONG = Retry(window_s=60.0, first_s=0.01, longest_s=0.02)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer(lambda asked: {"ok": True}) as started:
        yield started


def ask(server: HttpServer, retry: Retry = LONG, **options: Any) -> Any:
    client = Client(server.url, retry=retry, **options)
    try:
        return background().wait(client.post("/x", {"a": 1}, {"X-Session-ID": "s"}))
    finally:
        background().wait(client.aclose())


async def collect(client: Client) -> list[Any]:
    return [event async for event in client.stream("/x", {})]


def stream(server: HttpServer, retry: Retry = LONG) -> list[Any]:
    client = Client(server.url, retry=retry)
    try:
        return background().wait(collect(client))
    finally:
        background().wait(client.aclose())


def test_body_headers_and_key_are_sent(server: HttpServer):
    assert ask(server, api_key="k") == {"ok": True}
    (asked,) = server.asked
    assert asked.body == {"a": 1}
    assert asked.headers["x-session-id"] == "s"
    assert asked.headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "param": "top_p"}},
        {"message": "no", "param": "top_p", "object": "error"},
    ],
)
def test_a_refusal_names_status_message_and_param(server: HttpServer, body):
    server.handler = lambda asked: web.json_response(body, status=400)
    with pytest.raises(Refused, match="HTTP 400: no") as caught:
        ask(server)
    assert (caught.value.status, caught.value.param) == (400, "top_p")
    assert len(server.asked) == 1  # a mistake is not tried again


def test_a_server_without_room_is_asked_again(server: HttpServer):
    server.handler = lambda asked: (
        web.json_response({"message": "queue is full"}, status=503)
        if len(server.asked) < 3
        else {"ok": True}
    )
    assert ask(server) == {"ok": True} and len(server.asked) == 3


def test_in_the_end_its_refusal_is_the_error(server: HttpServer):
    server.handler = lambda asked: web.json_response({"message": "queue is full"}, status=503)
    with pytest.raises(Refused, match="queue is full"):
        ask(server, SHORT)


def test_no_server_is_an_error_after_the_window(server: HttpServer):
    server.stop()
    with pytest.raises(Unreachable):
        ask(server, SHORT)
    server.start()


async def broken(asked: Asked) -> web.StreamResponse:
    """A head that promises more than comes."""
    response = web.StreamResponse(headers={"content-length": "100"})
    await response.prepare(asked.request)
    await response.write(b"{")
    asked.request.transport.close()
    return response


def test_an_answer_that_breaks_off_is_asked_for_again(server: HttpServer):
    server.handler = lambda asked: broken(asked) if len(server.asked) < 2 else {"ok": True}
    assert ask(server) == {"ok": True} and len(server.asked) == 2


def test_a_stream_is_its_events(server: HttpServer):
    server.handler = lambda asked: sse(asked, ": hi\n\n", *events({"n": 1}, {"n": 2}))
    assert stream(server) == [{"n": 1}, {"n": 2}]


def test_a_stream_that_ends_early_is_not_tried_again(server: HttpServer):
    server.handler = lambda asked: sse(asked, *events({"n": 1}, done=False))
    with pytest.raises(BrokenAnswer, match="without"):
        stream(server)
    assert len(server.asked) == 1


def test_a_stream_that_breaks_before_its_first_event_is_asked_for_again(server: HttpServer):
    """Broken, or ended with nothing but a comment."""
    good = events({"n": 1})

    def handle(asked: Asked) -> Awaitable[web.StreamResponse]:
        nth = len(server.asked)
        return broken(asked) if nth == 1 else sse(asked, ": hi\n\n", *(good if nth == 3 else ()))

    server.handler = handle
    assert stream(server) == [{"n": 1}] and len(server.asked) == 3


def test_a_stream_that_never_begins_is_an_error_after_the_window(server: HttpServer):
    server.handler = broken
    with pytest.raises(Unreachable, match="the stream broke"):
        stream(server, SHORT)
    assert len(server.asked) > 1


def test_the_window_begins_with_the_first_failure(server: HttpServer):
    """An answer that took longer than the window, and broke off, is asked for again."""

    async def late(asked: Asked) -> web.StreamResponse:
        await asyncio.sleep(2 * SHORT.window_s)
        return await broken(asked)

    server.handler = lambda asked: late(asked) if len(server.asked) < 2 else {"ok": True}
    assert ask(server, SHORT) == {"ok": True}


def test_a_closed_client_is_held_by_nobody(server: HttpServer):
    client = Client(server.url)
    background().wait(client.post("/x", {}))
    background().wait(client.aclose())
    held = weakref.ref(client)
    del client
    gc.collect()
    assert held() is None


def test_an_error_event_is_a_refusal(server: HttpServer):
    error = {"error": {"message": "gone", "code": 503}}
    server.handler = lambda asked: sse(asked, *events({"n": 1}, error))
    with pytest.raises(Refused, match="HTTP 503: gone"):
        stream(server)


def test_an_event_that_is_no_json_is_told(server: HttpServer):
    server.handler = lambda asked: sse(asked, "data: {oops\n\n")
    with pytest.raises(BrokenAnswer, match="oops"):
        stream(server)


def test_plain_text_is_an_answer_too(server: HttpServer):
    server.handler = lambda asked: web.Response(text="Cache flushed.")
    assert ask(server) == "Cache flushed."
