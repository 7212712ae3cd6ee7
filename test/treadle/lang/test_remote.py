"""Our server as a backend: which routes are asked for what, and what happens when it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

import treadle as tr
from test.treadle.client.http_server import Asked, HttpServer, events, sse
from test.treadle.lang.test_chat_wire import whole

META = {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0, "finish_reason": None}


def answer(asked: Asked) -> Any:
    """Ids are the bytes of a text; every token has the log-probability minus its id."""
    body = asked.body
    if asked.path == "/v1/chat/completions":
        return whole(content="chat 42")
    if asked.path == "/tokenize":
        texts = body.get("prompt") or "".join(m["content"] for m in body["messages"])
        rows = [list(text.encode()) for text in texts] if isinstance(texts, list) else None
        return {"tokens": rows if rows is not None else list(texts.encode())}
    if asked.path == "/generate":
        if "text" in body:
            return {"text": "42", "output_ids": [52, 50], "meta_info": META}
        ids = body["input_ids"]
        if not isinstance(ids[0], list):
            return {"text": "", "output_ids": [], "meta_info": META}
        start = body.get("logprob_start_len", 0)
        return [
            {"text": "", "meta_info": {"input_token_logprobs": [
                [None if i == 0 else -float(token), token, None]
                for i, token in enumerate(row)][start:]}}
            for row in ids
        ]  # fmt: skip
    return web.json_response({"message": "no route"}, status=404)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer(answer) as started:
        yield started


@pytest.fixture
def run(server: HttpServer) -> Iterator[Callable[..., tr.State]]:
    endpoint = tr.RuntimeEndpoint(server.url + "/", retry_s=5.0)
    yield lambda *parts, **options: tr.function(lambda s: s.append(list(parts))).run(
        backend=endpoint, **options
    )
    endpoint.close()


def test_the_template_is_the_server_s():
    with pytest.raises(tr.ProgramError, match="--chat-template chatml"):
        tr.RuntimeEndpoint("http://a", chat_template_name="chatml")


def test_a_text_is_asked_natively_in_its_session(server: HttpServer, run):
    state = run("a", tr.gen("x", max_tokens=2, seed=7, priority=1), session_id="s")
    (asked,) = server.asked
    assert state["x"] == "42"
    assert asked.path == "/generate" and asked.headers["x-session-id"] == "s"
    assert asked.body == {
        "text": "a", "session_id": "s", "priority": 1,
        "sampling_params": {"max_new_tokens": 2, "sampling_seed": 7, "temperature": 1.0},
    }  # fmt: skip


def test_a_chat_is_asked_as_one(server: HttpServer, run):
    state = run(tr.user("a"), tr.assistant(tr.gen("x")))
    assert state["x"] == "chat 42" and state.get_meta_info("x")["cached_tokens"] == 8
    assert server.asked[0].path == "/v1/chat/completions"


def test_a_fork_commits_its_prefix_and_names_its_parent(server: HttpServer):
    endpoint = tr.RuntimeEndpoint(server.url)

    @tr.function
    def forked(s):
        s += "ab"
        with s.fork(2) as forks:
            forks += tr.gen("x")

    forked.run(backend=endpoint, session_id="s")["x"]
    endpoint.close()
    commit = server.asked[1]
    assert commit.body["input_ids"] == [97, 98] and commit.body["session_id"] == "s"
    assert commit.body["sampling_params"]["max_new_tokens"] == 0
    branches = [asked for asked in server.asked if "text" in (asked.body or {})]
    assert {a.headers["x-parent-session-id"] for a in branches} == {"s"}
    assert {a.body["parent_session_id"] for a in branches} == {"s"}


def test_choices_are_scored_from_where_the_first_leaves_the_prompt(server: HttpServer, run):
    state = run("x: ", tr.select("a", ["bd", "c"]))
    scored = server.asked[-1].body
    assert scored["logprob_start_len"] == 3 and scored["input_ids"][1] == list(b"x: c")
    assert state["a"] == "bd"  # (98 + 100) / 2 = 99, as c; the first of equals
    assert server.asked[1].body["input_ids"] == list(b"x: ")  # the prefix is committed before


def test_unconditional_scores_are_of_the_choice_alone(server: HttpServer, run):
    run("x: ", tr.select("a", ["bd", "c"], choices_method="unconditional_likelihood_normalized"))
    assert server.asked[-1].body["input_ids"] == [list(b"bd"), list(b"c")]
    assert server.asked[-1].body["logprob_start_len"] == 0


def test_an_empty_choice_is_refused(server: HttpServer, run):
    state = run("x: ", tr.select("a", ["b", ""]))
    assert "must not be empty" in str(state.error())


def test_native_streams_are_cumulative(server: HttpServer, run):
    body: list[object] = [
        {"text": text, "output_ids": [], "meta_info": META} for text in ("4", "42", "42")
    ]
    server.handler = lambda asked: sse(asked, *events(*body))
    state = run("a", tr.gen("x"), stream=True)
    assert list(state.text_iter("x")) == ["4", "2"]


def test_the_first_delta_of_a_chat_is_timed(server: HttpServer, run):
    chunks = [{"choices": [{"index": 0, "delta": {"content": c}}]} for c in "42"]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server.handler = lambda asked: sse(asked, *events(*chunks, end))
    state = run(tr.user("a"), tr.assistant(tr.gen("x")), stream=True)
    assert list(state.text_iter("x")) == ["4", "2"]
    assert state.get_meta_info("x")["first_token_latency"] > 0


def test_an_abort_by_the_server_is_an_error(server: HttpServer, run):
    meta = {**META, "finish_reason": {"type": "abort", "message": "by hand"}}
    server.handler = lambda asked: {"text": "4", "meta_info": meta}
    assert "aborted the request: by hand" in str(run("a", tr.gen("x")).error())


def test_a_server_that_restarts_in_the_middle_of_a_run_costs_time_only(server: HttpServer):
    endpoint = tr.RuntimeEndpoint(server.url, retry_s=60.0)

    @tr.function
    def long(s):
        s += "a" + tr.gen("x")
        s["x"]
        server.stop()
        s += "b" + tr.gen("y")
        threading.Timer(0.2, server.start).start()

    state = long.run(backend=endpoint)
    endpoint.close()
    assert state.error() is None and state["y"] == "42"


def test_a_server_that_stays_away_ends_the_run_with_an_error(server: HttpServer):
    endpoint = tr.RuntimeEndpoint(server.url, retry_s=0.2)
    server.stop()
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run(backend=endpoint)
    endpoint.close()
    server.start()
    assert isinstance(state.error(), tr.Unreachable)


def test_closing_releases_the_session(server: HttpServer, run):
    server.handler = lambda asked: {} if asked.path == "/release_session" else answer(asked)
    run("a", tr.gen("x"), session_id="s").close()
    assert server.asked[-1].body == {"session_id": ["s"]}
    assert server.asked[-1].headers["x-session-id"] == "s"


def test_closing_without_a_server_is_no_error_and_does_not_wait(server: HttpServer, run):
    state = run("a", tr.gen("x"))
    server.stop()
    state.close()
    server.start()
    assert state["x"] == "42"


def test_a_server_that_keeps_nothing_for_sessions_is_not_asked_again(server: HttpServer, run):
    for _ in range(2):
        run("a", tr.gen("x")).close()
    assert [a.path for a in server.asked].count("/release_session") == 1  # 404: no such route


@pytest.mark.parametrize("found", ["<html>", "null", "{}", "[]", "[1]"])
@pytest.mark.parametrize("is_streaming", [False, True])
def test_an_answer_of_another_form_is_broken(found: str, is_streaming: bool):
    async def odd(asked: Asked) -> web.StreamResponse:
        if is_streaming and asked.path != "/tokenize":
            return await sse(asked, f"data: {found}\n\n", "data: [DONE]\n\n")
        return web.Response(text=found)

    parts: list[Any] = [
        ["1" + tr.gen("a")], [tr.user("1"), tr.assistant(tr.gen("a"))],
        ["1" + tr.select("a", ["b", "c"])],
    ]  # fmt: skip
    with HttpServer(odd) as server, tr.RuntimeEndpoint(server.url) as endpoint:
        for each in parts:
            program = tr.function(lambda s, each: s.append(each))
            state = program.run(each, backend=endpoint, stream=is_streaming)
            _ = state.ret_value  # its thread has asked all it will ask
            assert isinstance(state.error(), tr.BrokenAnswer), state.error()


def test_a_url_without_a_scheme_is_told():
    with pytest.raises(tr.ProgramError, match="http:// or https://, got '127.0.0.1:30000'"):
        tr.RuntimeEndpoint("127.0.0.1:30000")
