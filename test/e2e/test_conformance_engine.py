"""The first release's checklist, lines C9, C10 and C12: what the engine does for real clients; and
one more client, a closed loop of agents."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from test.e2e.conftest import StartServer
from test.e2e.prometheus import scrape, scrape_until
from test.e2e.server import ROOT, Server
from test.e2e.streams import aiter_lines
from test.srt.test_metrics import STARRED

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

SMOLLM, GEMMA = "smollm2-135m", "gemma3-270m"
MEMORY = ("--kv-cache-memory", "256M", "--max-warm-windows", "0")
PROMPT = "The loom was invented a long time ago. The first looms were"
LONG = {"model": "m", "prompt": PROMPT, "max_tokens": 2000, "ignore_eos": True, "stream": True}

ABORTED, DECODED = "sglang:num_aborted_requests_total", 'sglang:realtime_tokens_total|mode="decode"'
RUNNING, USED = "sglang:num_running_reqs", "sglang:num_used_tokens"


@pytest.fixture(scope="module", params=[SMOLLM, GEMMA])
def server(request: pytest.FixtureRequest, serve_module: StartServer) -> Iterator[Server]:
    server = serve_module(f"demo:{request.param}", *MEMORY)
    yield server
    server.close()


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=240) as http:
        yield http


async def first_event(response: httpx.Response) -> dict[str, Any]:
    async for line in aiter_lines(response):
        if line:
            event: dict[str, Any] = orjson.loads(line.removeprefix("data: "))
            return event
    raise AssertionError("a stream without events")


async def test_c9_disconnect_frees_kv_within_one_step(server: Server, http: httpx.AsyncClient):
    """The worker is held while the client goes, so steps can be counted: none is planned after the
    news, and what was in flight is all that runs."""
    worker = server.child("worker0")
    before = await scrape(http, ABORTED)
    async with http.stream("POST", "/v1/completions", json=LONG) as response:
        await first_event(response)
        assert (await scrape(http, USED))[USED] > 0
        worker.send_signal(signal.SIGSTOP)
    try:
        gone = await scrape_until(
            http, lambda found: found[ABORTED] > before[ABORTED], ABORTED, DECODED
        )
    finally:
        worker.send_signal(signal.SIGCONT)
    free = await scrape_until(
        http, lambda found: found[RUNNING] == found[USED] == 0, RUNNING, USED, DECODED
    )
    assert free[DECODED] - gone[DECODED] <= 1


async def ending(http: httpx.AsyncClient, rid: str, begun: asyncio.Event) -> str:
    async with http.stream("POST", "/v1/completions", json={**LONG, "rid": rid}) as response:
        reasons = []
        async for line in aiter_lines(response):
            begun.set()
            if line.startswith("data: {"):
                reasons.append(orjson.loads(line.removeprefix("data: "))["choices"][0])
        return str(reasons[-1]["finish_reason"])


async def test_c9_abort_by_prefix_and_flush_under_load(http: httpx.AsyncClient):
    names = ["agent-1/a", "agent-1/b", "agent-2/a"]
    begun = [asyncio.Event() for _ in names]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ending(http, *pair)) for pair in zip(names, begun, strict=True)]
        await asyncio.gather(*(event.wait() for event in begun))
        flush = await http.post("/flush_cache")
        assert flush.status_code == 400
        assert "run" in flush.text
        done = await http.post("/abort_request", json={"rid": "agent-1/", "prefix": True})
        assert done.json()["num_aborted"] == 2
        assert [await tasks[0], await tasks[1]] == ["abort", "abort"]
        assert not tasks[2].done()
        done = await http.post("/abort_request", json={"rid": "agent-2/a"})
        assert await tasks[2] == "abort"
    assert (await http.post("/flush_cache", params={"timeout": 60})).status_code == 200


async def test_c10_starred_metrics_are_there_with_their_types(http: httpx.AsyncClient):
    text = (await http.get("/metrics")).text
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert {name: types.get(name) for name in STARRED} == STARRED


COUNTED = {
    "sglang:prompt_tokens_total": "prompt_tokens",
    "sglang:generation_tokens_total": "completion_tokens",
    "sglang:cached_tokens_total": "cached_tokens",  # clients add up all sources
    DECODED: "completion_tokens",
}


async def usages(http: httpx.AsyncClient) -> list[dict[str, int]]:
    """Of requests on all generating routes, in the native spelling."""
    chat = {"model": "m", "messages": [{"role": "user", "content": PROMPT * 3}], "max_tokens": 5}
    found = []
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", {**chat, "n": 2, "temperature": 1}),
        ("/v1/completions", {"model": "m", "prompt": [PROMPT, PROMPT * 4], "max_tokens": 3}),
    ):
        usage = (await http.post(path, json=body)).json()["usage"]
        found.append({**usage, **usage["prompt_tokens_details"]})
    native = {"text": [PROMPT * 4, "x"], "sampling_params": {"max_new_tokens": 4}}
    found += [answer["meta_info"] for answer in (await http.post("/generate", json=native)).json()]
    usage = (await http.post("/v1/messages", json=chat)).json()["usage"]
    cached = usage["cache_read_input_tokens"]
    found.append(
        {
            "prompt_tokens": usage["input_tokens"] + cached,
            "completion_tokens": usage["output_tokens"],
            "cached_tokens": cached,
        }
    )
    return found


async def test_c10_counters_equal_the_sums_of_usage(http: httpx.AsyncClient):
    before = await scrape(http, *COUNTED)
    found = await usages(http)
    after = await scrape(http, *COUNTED)
    grown = {name: after[name] - before[name] for name in COUNTED}
    assert grown == {name: sum(usage[key] for usage in found) for name, key in COUNTED.items()}
    # prompts as short as these hit nothing where windows would have to be replayed from the start
    has_windows = "sglang:swa_used_tokens" in (await http.get("/metrics")).text
    assert (sum(usage["cached_tokens"] for usage in found) > 0) != has_windows


BENCH = [
    "-m", "abench", "run", "--dataset-name", "random", "--turns", "2", "--output-len", "4",
    "--input-increment", "64", "--system-prompt-len", "128", "--max-concurrency", "2",
    "--num-sessions", "3", "--no-gaps", "--warmup-requests", "0", "--disable-tqdm",
]  # fmt: skip


@pytest.mark.skipif(find_spec("abench") is None, reason="agentic-bench is not installed")
@pytest.mark.parametrize("server", [SMOLLM], indirect=True)
async def test_agentic_bench_finishes_every_turn_and_reads_what_was_cached(
    server: Server, http: httpx.AsyncClient, tmp_path: Path
):
    """The client as it is published; its figures are the server's own."""
    before = await scrape(http, *COUNTED)
    file = tmp_path / "result.jsonl"
    argv = [sys.executable, *BENCH, "--base-url", server.url, "--output-file", str(file)]
    bench = await asyncio.create_subprocess_exec(
        *argv, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await bench.communicate()
    assert bench.returncode == 0, out.decode()
    result = orjson.loads(file.read_bytes())
    turns = [turn for session in result["sessions"] for turn in session["turns"]]
    assert len(turns) == 6 and [turn["error"] for turn in turns if not turn["success"]] == []
    after = await scrape(http, *COUNTED)
    grown = {key: after[name] - before[name] for name, key in COUNTED.items()}
    assert grown == {
        "prompt_tokens": sum(turn["input_len"] for turn in turns),
        "completion_tokens": sum(turn["output_len"] for turn in turns),
        "cached_tokens": sum(turn["server_cached_tokens"] for turn in turns),
    }
    assert sum(turn["cached_device_tokens"] for turn in turns) == grown["cached_tokens"] > 0
    assert result["config"]["backend"] == "sglang"
    assert result["metrics"]["prefix_cache_ratio"] > 0.5
    assert result["metrics"]["kv_pool_capacity_tokens"] > 1000


HIT, TAIL = 704, 32
TEXTS = ("srt/ARCHITECTURE.md", "LICENSE", "srt/cache/radix.py")
# Measured with the shortest replay there is, one window of rows for eighteen layers: 0.004 to 0.08
# nats a token in the mean of a text, and the likeliest token differs in 4 rows of 105.
MOST_NATS, LEAST_AGREEMENT = 0.2, 0.85
needs_windows = pytest.mark.parametrize("server", [GEMMA], indirect=True)


async def ask(http: httpx.AsyncClient, ids: list[int], **fields: object) -> dict[str, Any]:
    sampling = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True}
    body |= {"top_logprobs_num": 1}
    response = await http.post("/generate", json={**body, "logprob_start_len": HIT + 1, **fields})
    answer: dict[str, Any] = response.json()
    assert response.status_code == 200, answer
    return answer


async def cut(http: httpx.AsyncClient, path: str) -> list[int]:
    text = (ROOT / path).read_text()
    answer = await http.post("/tokenize", json={"prompt": text})
    ids: list[int] = answer.json()["tokens"][: HIT + TAIL]
    return ids


def logprobs(answer: dict[str, Any]) -> list[float]:
    """Of the prompt tokens whose rows come after the hit."""
    found = [entry[0] for entry in answer["meta_info"]["input_token_logprobs"]]
    return [logprob for logprob in found if logprob is not None]


def greedy(answer: dict[str, Any]) -> list[int]:
    """The likeliest tokens at the same places, and those of the output."""
    tops = answer["meta_info"]["input_top_logprobs"]
    return [top[0][1] for top in tops if top] + answer["output_ids"]


@needs_windows
@pytest.mark.parametrize("texts", (TEXTS[:2], pytest.param(TEXTS, marks=pytest.mark.long)))
async def test_c12_replay_on_and_off_agree_within_the_noise(
    http: httpx.AsyncClient, texts: tuple[str, ...]
):
    """Perplexity of the rows after a hit, and the token that greedy takes at each of them."""
    worst, same = 0.0, []
    for path in texts:
        ids = await cut(http, path)
        cold = await ask(http, ids, swa_replay="off")
        assert cold["meta_info"]["cached_tokens"] == 0
        await ask(http, ids[: HIT + 1], logprob_start_len=-1)
        warm = await ask(http, ids, swa_replay="bounded", swa_replay_slope=0)
        meta = warm["meta_info"]
        assert (meta["cached_tokens"], meta["replayed_tokens"]) == (HIT, 512)
        nats = [a - b for a, b in zip(logprobs(cold), logprobs(warm), strict=True)]
        worst = max(worst, abs(math.fsum(nats)) / len(nats))
        same += [a == b for a, b in zip(greedy(cold), greedy(warm), strict=True)]
    assert worst <= MOST_NATS
    assert sum(same) >= LEAST_AGREEMENT * len(same)


async def test_c12_scores_of_a_prompt_are_exact_after_a_hit(serve: StartServer):
    """With the window cut to 16: an exact replay of the real one is longer than a short prompt."""
    hit, exact_rows = 256, 15 * 15
    override = '{"gemma3.attention.sliding_window": 16}'
    server = serve(f"demo:{GEMMA}", *MEMORY, "--json-model-override-args", override)
    async with httpx.AsyncClient(base_url=server.url, timeout=240) as http:
        ids = (await cut(http, TEXTS[0]))[: hit + TAIL]
        cold = await ask(http, ids, swa_replay="off", logprob_start_len=hit + 1)
        await ask(http, ids[: hit + 1], logprob_start_len=-1, swa_replay="exact")
        warm = await ask(http, ids, logprob_start_len=hit + 1)
        meta = warm["meta_info"]
        assert (meta["cached_tokens"], meta["replayed_tokens"]) == (hit, exact_rows)
        assert logprobs(warm) == logprobs(cold)
        assert len(logprobs(warm)) == TAIL - 1
        assert warm["output_ids"] == cold["output_ids"]


@needs_windows
async def test_c12_window_gauges_rise_with_a_request_and_fall_after_it(http: httpx.AsyncClient):
    """What a request leaves in the prefix cache holds no window."""
    names = ("sglang:swa_used_tokens", "sglang:swa_token_usage", "sglang:swa_evictable_tokens")
    async with http.stream("POST", "/v1/completions", json=LONG) as response:
        await first_event(response)
        busy = await scrape(http, *names)
    assert busy[names[0]] == 512
    assert 0 < busy[names[1]] <= 1
    idle = await scrape_until(http, lambda found: not any(found.values()), *names)
    assert idle == dict.fromkeys(names, 0.0)
    assert (await scrape(http, "sglang:kv_evictable_tokens"))["sglang:kv_evictable_tokens"] > 0
