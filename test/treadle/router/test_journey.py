"""Attempts and retries, byte by byte (rules A11, A12, A19, A21, A23 and the table of 4.5)."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import orjson
import pytest

from test.treadle.router.fake_replica import (
    LAST_CHUNK,
    STREAM,
    answer,
    chunk,
    hang,
    head,
    reset_before_headers,
    stream,
)
from test.treadle.router.harness import CHAT, Bench, pass_time, routing, until
from treadle.router.journey import opened_name

EVENTS = [b'data: {"a": 1}\n\n', b'data: {"a": 2}\n\n', b"data: [DONE]\n\n"]
NOT_ADMITTED = answer(503, b'{"error": "full"}', x_not_admitted="1", retry_after="7")


def seen(bench: Bench) -> int:
    return sum(len(replica.seen) for replica in bench.replicas)


async def test_an_answer_passes_with_the_decision_in_its_headers():  # A12, A23
    async with routing(answer(200, b'{"id": 1}', x_own="yes")) as bench:
        got = await bench.post(x_session_id="s", x_request_id="my-id")
        (replica,) = bench.replicas
        assert got.content == b'{"id": 1}'
        assert got.headers["x-own"] == "yes"
        assert got.headers["x-router-replica"] == replica.url
        assert got.headers["x-router-decision"] == "new"
        assert got.headers["x-rid"] == replica.seen[0].headers["x-rid"] == "my-id"
        assert got.headers["cache-control"] == "no-store"
        again = await bench.post(x_session_id="s")
        assert again.headers["x-router-decision"] == "pinned"
        assert len(again.headers["x-rid"]) == 32  # made here
        assert again.headers["x-request-id"] == again.headers["x-rid"]
        keyless = await bench.post()
        assert keyless.headers["x-router-decision"] == "keyless"
        text = await bench.metrics()
        for decision in ("new", "pinned", "keyless"):
            assert f'treadle:router_decisions_total{{decision="{decision}"}} 1.0' in text


async def test_the_body_goes_on_as_the_bytes_that_came():  # A4
    body = b'{ "messages" : [],\n "x":1.0e0, "prompt_cache_key": "k" }'
    async with routing(answer()) as bench:
        for headers in ({}, {"x-session-id": "s"}):
            await bench.http.post("/v1/chat/completions", content=body, headers=headers)
        assert [s.body for s in bench.replicas[0].seen] == [body, body]


async def test_headers_of_the_client_travel_and_those_of_the_connection_do_not():
    async with routing(answer()) as bench:
        headers = {"authorization": "Bearer k", "traceparent": "00-1", "te": "x", "x-hop": "1"}
        await bench.http.get("/server_info?a=b%20c", headers={**headers, "connection": "x-hop"})
        (got,) = bench.replicas[0].seen
        assert got.path == "/server_info?a=b%20c"
        assert got.headers["authorization"] == "Bearer k" and got.headers["traceparent"] == "00-1"
        assert "te" not in got.headers and "x-hop" not in got.headers
        assert got.headers["host"] == f"127.0.0.1:{bench.replicas[0].port}"


async def test_a_stream_passes_byte_by_byte_as_it_comes():  # A19
    async with routing(answer()) as bench:
        step = asyncio.Event()

        async def script(seen, wire):
            await wire.write(STREAM)
            for event in EVENTS:
                await wire.write(chunk(event))
                await step.wait()
                step.clear()
            await wire.write(LAST_CHUNK)

        bench.replicas[0].script = script
        async with bench.http.stream("POST", "/generate", json={"stream": True}) as got:
            assert got.headers["x-accel-buffering"] == "no"
            assert got.headers["content-type"] == "text/event-stream"
            received = []
            async for data in got.aiter_raw():
                received.append(data)
                step.set()
        assert received == EVENTS


@pytest.mark.parametrize("broken", [reset_before_headers, answer(500), answer(502), answer(504)])
async def test_a_broken_replica_is_told_to_stop_and_another_answers(broken):  # 4.5
    async with routing(broken, answer(200, b"good")) as bench:
        bad, good = bench.replicas
        for name in bench.sessions_of(bad, 2) + bench.sessions_of(good, 2):
            got = await bench.post(x_session_id=name)
            assert (got.status_code, got.content) == (200, b"good")
        posts = [s for s in bad.seen if s.path != "/abort_request"]
        aborts = [s.json["rid"] for s in bad.seen if s.path == "/abort_request"]
        assert len(posts) == 2 and aborts == [s.headers["x-rid"] for s in posts]
        rids = [s.headers["x-rid"] for s in good.seen]
        assert set(aborts) <= set(rids)  # the id is kept


async def test_a_refused_connection_is_tried_elsewhere():  # 4.5, A14
    async with routing(answer(), answer(200, b"good")) as bench:
        dead = bench.replicas[0]
        await dead.stop()
        decisions = []
        for name in bench.sessions_of(dead, 6):
            got = await bench.post(x_session_id=name)
            assert got.content == b"good"
            decisions.append(got.headers["x-router-decision"])
        assert decisions.count("failover") == 3  # then the breaker is open
        assert bench.life(dead).state == "suspect"
        assert f'smg_worker_cb_state{{worker="{dead.url}"}} 1.0' in await bench.metrics()


async def test_a_replica_that_does_not_admit_is_passed_by():  # 4.5, A15
    async with routing(NOT_ADMITTED, answer(200, b"good")) as bench:
        names = bench.sessions_of(bench.replicas[0], 5)
        got = [await bench.post(x_session_id=name) for name in names]
        assert {g.content for g in got} == {b"good"} and len(bench.replicas[0].seen) == 5
        assert bench.life(bench.replicas[0]).state == "ready"
        assert not [s for s in bench.replicas[0].seen if s.path == "/abort_request"]


async def test_without_another_replica_the_refusal_is_passed_on():  # 4.5
    async with routing(NOT_ADMITTED, NOT_ADMITTED) as bench:
        got = await bench.post()
        assert (got.status_code, got.content) == (503, b'{"error": "full"}')
        assert got.headers["retry-after"] == "7"
        assert seen(bench) == 2  # at most two attempts


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 501, 503])
async def test_other_statuses_are_passed_on(status: int):  # 4.5
    async with routing(answer(status, b'{"x": 1}'), answer(status, b'{"x": 1}')) as bench:
        got = await bench.post()
        assert (got.status_code, got.content) == (status, b'{"x": 1}')
        assert seen(bench) == 1


async def test_bad_requests_never_take_a_replica_out():  # A15
    async with routing(answer(400)) as bench:
        await asyncio.gather(*(bench.post() for _ in range(50)))
        assert bench.life(bench.replicas[0]).state == "ready"


@pytest.mark.parametrize("path", ["/open_session", "/close_session", "/some/other/route"])
async def test_what_must_not_repeat_is_not_tried_again(path: str):  # 4.5
    async with routing(answer(500), answer(500)) as bench:
        sessions = bench.router._sessions
        sessions.opened("s", bench.replicas[0].url)
        got = await bench.post(path, {"session_id": "s"})
        assert got.status_code == 500
        assert seen(bench) == 1


async def test_no_second_attempt_after_a_byte_of_the_body():  # 4.5, A21
    broken = stream(EVENTS[0], is_whole=False)
    async with routing(broken, broken) as bench:
        async with bench.http.stream("POST", "/generate", json={"stream": True}) as got:
            text = await got.aread()
        head_, error = text[: len(EVENTS[0])], text[len(EVENTS[0]) :]
        assert head_ == EVENTS[0]
        assert error.startswith(b"data: ") and error.endswith(b"\n\n") and error.count(b"\n") == 2
        assert orjson.loads(error[6:])["error"]["code"] == "stream_broken"
        assert seen(bench) == 1
        assert "treadle:router_stream_broken_total 1.0" in await bench.metrics()


async def test_half_an_event_is_dropped_before_the_error():  # A21
    async with routing(stream(EVENTS[0], b'data: {"a": "ha', is_whole=False)) as bench:
        async with bench.http.stream("POST", "/generate", json={"stream": True}) as got:
            lines = [line async for line in got.aiter_lines() if line]
        assert [orjson.loads(line[6:]).get("a") for line in lines] == [1, None]


async def test_anthropic_streams_break_in_their_dialect():  # A21
    async with routing(stream(b"event: ping\ndata: {}\n\n", is_whole=False)) as bench:
        async with bench.http.stream("POST", "/v1/messages", json={"stream": True}) as got:
            text = await got.aread()
        name, data = text.split(b"\n\n")[1].split(b"\n")
        assert name == b"event: error"
        assert orjson.loads(data[6:])["type"] == "error"


FAILED_OVER = "x-router-decision: failover"


async def test_a_stream_that_gave_only_headers_goes_on_elsewhere():  # 4.5
    async with routing(stream(is_whole=False), stream(*EVENTS)) as bench:
        broken, good = bench.replicas
        for name in bench.sessions_of(broken, 2) + bench.sessions_of(good, 2):
            body = {"stream": True, "session_id": name}
            async with bench.http.stream("POST", "/generate", json=body) as got:
                text = await got.aread()
            named, whole = got.headers["x-router-replica"], b"".join(EVENTS)
            assert text.endswith(whole)
            note = text.removesuffix(whole)
            if named == broken.url:  # its headers were out already; A12
                named = good.url
                assert note == f": x-router-replica: {named}\n: {FAILED_OVER}\n\n".encode()
            else:
                assert note == b""
            assert named == good.url
        assert [s.path for s in broken.seen] == ["/generate", "/abort_request"] * 2


async def test_another_status_after_headers_ends_the_stream_in_an_error():
    async with routing(stream(is_whole=False), answer(400, b"no")) as bench:
        (name,) = bench.sessions_of(bench.replicas[0], 1)
        got = await bench.post("/generate", {"stream": True, "session_id": name})
        assert b"another replica answered with status 400" in got.content
        assert b"stream_broken" in got.content


async def test_half_of_a_plain_body_ends_in_a_cut_connection():  # A21
    has_come = asyncio.Event()

    async def script(seen, wire):
        await wire.write(head(200, {"content-type": "application/json", "content-length": "100"}))
        await wire.write(b'{"half": ')
        await has_come.wait()
        wire.reset()

    async with routing(script) as bench, bench.http.stream("POST", "/generate", json={}) as got:
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in got.aiter_raw():
                has_come.set()


async def test_a_whole_plain_body_that_was_cut_before_it_began_is_answered_elsewhere():
    async def script(seen, wire):
        await wire.write(head(200, {"content-type": "application/json", "content-length": "100"}))
        wire.reset()

    async with routing(script, answer(200, b"good")) as bench:
        for name in bench.sessions_of(bench.replicas[0], 2):
            assert (await bench.post(x_session_id=name)).content == b"good"
        assert len([s for s in bench.replicas[0].seen if s.path != "/abort_request"]) == 2


async def test_an_answer_that_does_not_come_is_a_504_and_no_retry():  # 4.5
    async with routing(hang, hang, limits={"request_timeout_s": 30.0}) as bench:
        asking = asyncio.create_task(bench.post())
        await until(lambda: seen(bench))
        pass_time(31.0)
        got = await asking
        assert got.status_code == 504
        assert seen(bench) == 1
        assert "retry-after" not in got.headers


@pytest.mark.parametrize("start", [b"", STREAM])
async def test_the_first_byte_may_take_longer_than_the_idle_time(start: bytes):  # A19
    async def script(seen, wire):
        await wire.write(start)
        await asyncio.sleep(0.3)
        await wire.write((b"" if start else STREAM) + chunk(EVENTS[2]) + LAST_CHUNK)

    async with routing(script, limits={"idle_timeout_s": 0.05}) as bench:
        assert (await bench.post()).content == EVENTS[2]


async def test_headers_alone_are_not_the_first_byte():  # 4.5
    async def script(seen, wire):
        await wire.write(STREAM)
        await hang(seen, wire)

    async with routing(script, limits={"request_timeout_s": 30.0}) as bench:
        asking = asyncio.create_task(bench.post())
        await until(lambda: seen(bench))
        pass_time(31.0)
        assert b"did not answer" in (await asking).content
        await bench.replicas[0].seen[0].is_gone.wait()


async def test_a_stream_that_stays_silent_ends_after_the_idle_time():  # A19
    async def script(seen, wire):
        await wire.write(STREAM + chunk(EVENTS[0]))
        await hang(seen, wire)

    async with routing(script, limits={"idle_timeout_s": 0.2}) as bench:
        async with bench.http.stream("POST", "/generate", json={"stream": True}) as got:
            text = await got.aread()
        assert text.startswith(EVENTS[0]) and b"stream_broken" in text


async def test_the_retry_budget_bounds_second_attempts():  # 4.5
    async with routing(NOT_ADMITTED, NOT_ADMITTED, NOT_ADMITTED) as bench:
        bench.router._surface.forwarder._parts.budget.burst = 2.0
        for _ in range(10):
            await bench.post()
        assert seen(bench) == 10 + 2 + 0  # a tenth of ten requests is not yet one


async def test_no_ready_replica_is_a_503_at_once():  # A17
    async with routing(answer(), is_ready=False) as bench:
        bench.replicas[0].ready = 503
        await bench.probe()
        got = await bench.post()
        assert got.status_code == 503
        assert got.headers["retry-after"] and got.headers["x-not-admitted"] == "1"
        assert got.json()["error"]["message"].startswith("no replica is ready")


async def test_a_rank_is_forwarded():  # A11
    async with routing(answer()) as bench:
        (replica,) = bench.replicas
        await bench.http.post("/workers", json={"url": f"{replica.url}@1"})
        await bench.probe()
        await bench.http.delete(f"/workers/{replica.url}")
        await until(lambda: len(bench.router._replicas) == 1)
        got = await bench.post(x_data_parallel_rank="7")
        assert replica.seen[-1].headers["x-data-parallel-rank"] == "1"
        assert got.headers["x-router-replica"] == f"{replica.url}@1"


async def test_a_worker_may_be_named():
    async with routing(answer(200, b"a"), answer(200, b"b")) as bench:
        for index, body in ((0, b"a"), (1, b"b"), (0, b"a")):
            url = bench.replicas[index].url
            got = await bench.post(x_session_id="s", x_smg_target_worker=url)
            assert got.content == body
        assert (await bench.post(x_smg_target_worker="nobody")).status_code == 400


async def test_a_request_for_a_worker_is_answered_by_it_or_by_nobody():
    async with routing(reset_before_headers, answer()) as bench:
        named = {"x_smg_target_worker": bench.replicas[0].url}
        assert (await bench.post(**named)).status_code == 502
        assert [len(replica.seen) for replica in bench.replicas] == [1, 0]


async def test_server_side_sessions_stay_on_their_replica_and_are_lost_with_it():  # 4.6, A22
    opened = answer(200, b'"sess"')
    async with routing(opened, opened) as bench:
        got = await bench.post("/open_session", {"capacity_of_str_len": 10})
        home = bench.replica(got.headers["x-router-replica"])
        turn = {"text": "a", "session_params": {"id": "sess"}}
        for _ in range(6):
            got = await bench.post("/generate", turn)
            assert got.headers["x-router-replica"] == home.url
        await home.stop()
        got = await bench.post("/generate", turn)
        assert got.status_code == 502
        got = await bench.post("/generate", turn)
        assert got.status_code == 410
        assert got.json()["error"]["code"] == "session_lost"
        (other,) = bench.others(home.url)
        assert not other.seen


async def test_a_closed_session_is_forgotten():  # 4.6
    async with routing(answer(200, b'"sess"')) as bench:
        await bench.post("/open_session", {"session_id": "sess"})
        assert len(bench.router._sessions) == 1
        await bench.post("/close_session", {"session_id": "sess"})
        assert len(bench.router._sessions) == 0


@pytest.mark.parametrize(
    ("data", "name"), [(b'"s"', "s"), (b'{"session_id": "s"}', "s"), (b"{", ""), (b"[1]", "")]
)
def test_the_name_of_an_opened_session_is_read(data: bytes, name: str):
    assert opened_name(data) == name


async def test_load_is_taken_back_however_a_request_ends():  # A8
    async with routing(stream(EVENTS[0], is_whole=False), reset_before_headers) as bench:
        for _ in range(4):
            with contextlib.suppress(httpx.HTTPError):
                await bench.post("/generate", {**CHAT, "stream": True})
        fleet = bench.router._replicas.fleet
        assert [fleet.load(name) for name in fleet.names] == [0.0, 0.0]
        assert len(bench.router._inflight) == 0
