"""What a broken answer becomes: an error of one request, never of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from treadle.bench.asks import Answer, Ask, Options
from treadle.bench.reach import open_http
from treadle.bench.sender import Sender, Target

META = b'{"prompt_tokens":3,"completion_tokens":1}'
EVENT = b'data: {"text":"a","output_ids":[1],"meta_info":' + META + b"}\n\n"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def stream(*parts: bytes) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    return answer


async def refuse(request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "too long"}}, status=400)


async def ask(handler: Handler) -> Answer:
    app = web.Application()
    app.router.add_post("/generate", handler)
    async with TestServer(app) as server, open_http({}) as http:
        url = str(server.make_url("")).rstrip("/")
        return await send(http, url)


async def send(http, url: str) -> Answer:
    target = Target("a", url, "sglang", "m")
    return await Sender(http, target, Options("m")).send(Ask("a b c", 1), 3)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (refuse, "status 400"),
        (stream(EVENT), "ended early"),
        (stream(EVENT, b'data: {"error":{"message":"gone"}}\n\n', b"data: [DONE]\n\n"), "gone"),
        (stream(b"data: [DONE]\n\n"), "not an answer"),
        (stream(b"data: nonsense\n\n"), "no JSON"),
        (stream(b'data: {"text":"a"}\n\ndata: [DONE]\n\n'), "meta_info"),
        (stream(b'data: {"text":5,"meta_info":' + META + b"}\n\ndata: [DONE]\n\n"), "its text"),
        (stream(EVENT.replace(b"3", b"-3"), b"data: [DONE]\n\n"), "'-3' where a number"),
        (stream(EVENT.replace(b"3", b'"3"'), b"data: [DONE]\n\n"), "'3' where a number"),
        (stream(EVENT.replace(b"[1]", b"[9e99]"), b"data: [DONE]\n\n"), "where a number"),
        (stream(EVENT.replace(META, b"[7]"), b"data: [DONE]\n\n"), "expected form"),
        (stream(EVENT.replace(b'tokens":1', b'tokens":0'), b"data: [DONE]\n\n"), "without a token"),
    ],
)
async def test_broken_answers_are_errors_of_their_request(handler: Handler, error: str):
    answer = await ask(handler)
    assert error in answer.error


async def test_a_whole_answer_is_timed_however_its_bytes_are_cut():
    answer = await ask(stream(EVENT[:9], EVENT[9:30], EVENT[30:] + b"data: [DO", b"NE]\n\n"))
    assert not answer.error
    assert answer.said.output_ids == (1,) and answer.said.cached is None
    assert 0 < answer.ttft_s == answer.e2e_s and answer.tpot_s is None


async def test_no_server_is_an_error_of_the_request():
    async with open_http({}) as http:
        assert "Connect" in (await send(http, "http://127.0.0.1:9")).error


async def test_no_connection_is_used_twice():
    """llama.cpp's server closes them unasked, and a request on one just closed would be lost."""
    ports = []

    async def answer(request: web.Request) -> web.StreamResponse:
        ports.append(request.transport.get_extra_info("peername")[1])
        return await stream(EVENT, b"data: [DONE]\n\n")(request)

    app = web.Application()
    app.router.add_post("/generate", answer)
    async with TestServer(app) as server, open_http({}) as http:
        url = str(server.make_url("")).rstrip("/")
        assert [(await send(http, url)).error for _ in range(3)] == [""] * 3
    assert len(set(ports)) == 3


async def test_a_request_that_json_cannot_hold_is_the_users_mistake():
    target, options = Target("a", "http://127.0.0.1:9", "sglang", "m"), Options("m", lora="\udcff")
    async with open_http({}) as http:
        with pytest.raises(ValueError, match="no request can be made"):
            await Sender(http, target, options).send(Ask("a", 1), 1)
