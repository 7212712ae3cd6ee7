"""Any OpenAI endpoint: what it has works, what it lacks is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

import treadle as tr
from test.treadle.client.http_server import Asked, HttpServer, events, sse
from test.treadle.lang.test_chat_wire import whole


def answer(asked: Asked) -> Any:
    body = asked.body
    if asked.path == "/v1/chat/completions":
        return whole(content='{"a": 1}')
    if body.get("echo"):
        return {"choices": [echo(text) for text in body["prompt"]]}
    return {"choices": [{"text": "42", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}


def echo(text: str) -> Any:
    """A token is a character; "n" is likely."""
    tokens = [*text, "!"]
    logprobs = [None, *(-1.0 if token == "n" else -2.0 for token in tokens[1:])]
    return {"text": text + "!", "logprobs": {"tokens": tokens, "token_logprobs": logprobs}}


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer(answer) as started:
        yield started


@pytest.fixture
def run(server: HttpServer) -> Iterator[Callable[..., tr.State]]:
    endpoint = tr.OpenAI("m", base_url=server.url + "/v1", api_key="k", retry_s=0.2)
    yield lambda *parts, **options: tr.function(lambda s: s.append(list(parts))).run(
        backend=endpoint, **options
    )
    endpoint.close()


def test_a_chat_is_spelled_in_the_protocol_alone(server: HttpServer, run):
    schema = {"type": "object"}
    state = run(tr.user("a"), tr.assistant(tr.gen("x", json_schema=schema)), session_id="s")
    (asked,) = server.asked
    assert state["x"] == '{"a": 1}' and asked.headers["authorization"] == "Bearer k"
    assert asked.headers["x-session-id"] == "s"
    assert asked.body == {
        "model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 128,
        "temperature": 1.0, "response_format": {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": schema},
        },
    }  # fmt: skip


def test_texts_are_completed(server: HttpServer, run):
    assert run("a", tr.gen("x"))["x"] == "42"
    assert server.asked[0].path == "/v1/completions" and server.asked[0].body["prompt"] == "a"


def test_chats_stream(server: HttpServer, run):
    chunks = [{"choices": [{"index": 0, "delta": {"content": c}}]} for c in "42"]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server.handler = lambda asked: sse(asked, *events(*chunks, end))
    state = run(tr.user("a"), tr.assistant(tr.gen("x")), stream=True)
    assert list(state.text_iter("x")) == ["4", "2"]


def test_choices_of_a_text_are_scored_by_its_echo(server: HttpServer, run):
    assert run("is it ", tr.select("x", ["yes", "nnn"]))["x"] == "nnn"


def test_scores_of_an_echo_tell_texts_and_no_ids(server: HttpServer, run):
    meta = run("is it ", tr.select("x", ["no", "nn"])).get_meta_info("x")
    assert meta["input_token_logprobs"] == [
        [[-1.0, None, "n"], [-2.0, None, "o"]],
        [[-1.0, None, "n"], [-1.0, None, "n"]],
    ]


def test_an_empty_choice_is_a_mistake_of_the_program(server: HttpServer, run):
    error = run("is it ", tr.select("x", ["", "no"])).error()
    assert isinstance(error, tr.ProgramError) and "must not be empty" in str(error)


def test_an_echo_that_ends_early_is_a_broken_answer(server: HttpServer, run):
    cut = {"text": "is it no!", "logprobs": {"tokens": ["is"], "token_logprobs": [None]}}
    server.handler = lambda asked: {"choices": [cut]}
    error = run("is it ", tr.select("x", ["no"])).error()
    assert isinstance(error, tr.BrokenAnswer) and "do not make up" in str(error)


def test_forks_work_without_a_commit(server: HttpServer):
    endpoint = tr.OpenAI("m", base_url=server.url + "/v1", api_key="k")

    @tr.function
    def forked(s):
        s += "a"
        with s.fork(2) as forks:
            forks += tr.gen("x")

    assert forked.run(backend=endpoint)["x"] == ["42", "42"] and len(server.asked) == 2
    endpoint.close()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["a", tr.gen("x", regex="a", top_k=3)], "regex, top_k"),
        ([tr.user("a"), tr.assistant("b" + tr.gen("x"))], "inside of an assistant turn"),
        ([tr.user("a"), tr.assistant(tr.select("x", ["b", "c"]))], "select in a chat"),
        (["a", tr.gen("x", return_logprob=True, logprob_start_len=0)], "logprob_start_len"),
        (["a", tr.gen("x", json_schema={})], "json_schema in a text"),
        (["a", tr.separate_reasoning(tr.gen("x"))], "separate_reasoning of a text"),
        (
            ["a", tr.select("x", ["b"], choices_method="unconditional_likelihood_normalized")],
            "unconditional_likelihood_normalized",
        ),
    ],
)
def test_what_the_protocol_lacks_is_refused_by_name(parts, words, run):
    error = run(*parts).error()
    assert isinstance(error, tr.Unsupported) and words in str(error)
    assert "a treadle server has it" in str(error)


def test_extensions_of_an_endpoint_may_be_named(server: HttpServer):
    endpoint = tr.OpenAI("m", base_url=server.url + "/v1", api_key="k", extensions=["top_k"])
    program = tr.function(lambda s: s.append("a" + tr.gen("x", top_k=3)))
    assert program.run(backend=endpoint)["x"] == "42"
    assert server.asked[0].body["top_k"] == 3
    endpoint.close()


def test_a_chat_model_takes_no_texts(server: HttpServer):
    endpoint = tr.OpenAI("m", True, base_url=server.url + "/v1", api_key="k")
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run(backend=endpoint)
    assert "text without roles" in str(state.error())


@pytest.mark.parametrize("found", ["<html>", "null", "{}", '{"choices": []}'])
def test_an_answer_of_another_form_is_broken(found: str):
    async def odd(asked: Asked) -> web.StreamResponse:
        return web.Response(text=found)

    parts = [["1" + tr.gen("a")], [tr.user("1"), tr.assistant(tr.gen("a"))]]
    with HttpServer(odd) as server, tr.OpenAI("m", base_url=server.url, api_key="k") as endpoint:
        for each in parts:
            state = tr.function(lambda s, each: s.append(each)).run(each, backend=endpoint)
            assert isinstance(state.error(), tr.BrokenAnswer), state.error()
