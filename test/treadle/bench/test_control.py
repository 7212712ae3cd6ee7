"""What a server that does not keep to its routes is told."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from treadle.bench.control import Control, Unready
from treadle.bench.reach import open_http


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def asked(answer: object, timeout_s: float = 1.0) -> None:
    async def tell(request: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    app = web.Application()
    app.router.add_get("/v1/models", silent if answer is None else tell)
    app.router.add_post("/tokenize", tell)
    async with TestServer(app) as server, open_http({}) as http:
        control = Control(http, str(server.make_url("")).rstrip("/"))
        await control.find("", "", "", timeout_s)
        await control.tokenize("a", add_special=True)


async def test_a_server_that_never_answers_is_waited_for_as_long_as_was_said():
    with pytest.raises(Unready, match="no answer in 0.1 s"):
        await asked(None, 0.1)


@pytest.mark.parametrize("answer", [{"data": 5}, {"data": [5]}, {"data": {"a": 1}}])
async def test_what_is_no_list_of_models_is_told(answer: object):
    with pytest.raises(Unready, match="no list of models"):
        await asked(answer)


@pytest.mark.parametrize("tokens", [5, ["a"], {"a": 1}])
async def test_what_is_no_list_of_ids_is_told(tokens: object):
    with pytest.raises(Unready, match="no list of ids"):
        await asked({"tokens": tokens})
