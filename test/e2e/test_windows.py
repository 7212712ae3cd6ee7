"""Window donation on the real worker: a tiny Gemma 3 through scheduler and cache.

Five window layers of window 8, pages of 4, slope 0: a bounded replay has 8 rows, an exact one 35.
"""

from __future__ import annotations

import random
import re
from array import array
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from test.driver import kv_pools
from test.e2e.conftest import StartServer
from test.e2e.server import Server
from test.engine import Answer, Engine
from test.tiny import tiny_gemma3
from treadle.srt.messages import AbortRequest, GenerateRequest, RequestId, SamplingParams

PROMPT = random.Random(2).choices(range(5, 320), k=61)
TOOL = random.Random(3).choices(range(5, 320), k=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


def hit(answer: Answer) -> tuple[int, int]:
    """(cached, replayed)."""
    assert answer.usage is not None
    return answer.usage.cached_tokens, answer.usage.replayed_tokens


def same(a: Answer, b: Answer) -> bool:
    return a.token_ids == b.token_ids and a.logprobs == b.logprobs


def check_continued(folder: Path, mode: str, cut: int) -> None:
    """Acceptance: a turn that goes on where one ended equals the generation that never stopped."""
    whole = Engine(folder, mode=mode).answer(PROMPT, 40)
    engine = Engine(folder, mode=mode, warm=2)
    first = engine.answer(PROMPT, cut)
    rest = engine.answer(PROMPT + first.token_ids, 40 - cut)
    end = len(PROMPT) + cut - 1  # the last sampled token was never run
    assert hit(rest) == (end // 4 * 4, 0)
    assert first.token_ids + rest.token_ids == whole.token_ids
    assert first.logprobs + rest.logprobs == whole.logprobs


@pytest.mark.parametrize("mode", ["bounded", "exact"])
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 20])
def test_turn_continued_by_donation_equals_the_uninterrupted_one(folder: Path, mode: str, cut: int):
    check_continued(folder, mode, cut)


@pytest.mark.parametrize("cut", [3, 8])
def test_and_with_reference_kernels(folder: Path, cut: int, reference_kernels: None):
    check_continued(folder, "exact", cut)


@pytest.mark.parametrize("mode", ["bounded", "exact"])
def test_turns_with_tool_output_never_replay_and_equal_cold_to_the_bit(folder: Path, mode: str):
    engine = Engine(folder, mode=mode, warm=1, running=1)
    prompt = PROMPT
    for turn in range(4):
        answer = engine.answer(prompt, 9, session="s")
        assert same(answer, Engine(folder, mode=mode).answer(prompt, 9))
        if turn:
            cached, replayed = hit(answer)
            assert replayed == 0
            assert cached > len(prompt) - len(TOOL) - 9
        prompt = [*prompt, *answer.token_ids, *TOOL[turn:]]
    counters, gauges = engine.scheduler.stats()
    assert counters["replay_rows"] == 0
    assert counters["window_takeovers"] + counters["window_copies"] == 3
    assert gauges["window_slots{state=warm}"] == 2


def test_both_branches_of_a_fork_go_on_without_replay(folder: Path):
    """The window is copied while slots are free, so the other branch finds it too."""
    engine = Engine(folder, mode="exact", warm=4)
    first = engine.answer(PROMPT, 9)
    for tail in (TOOL, TOOL[::-1]):
        prompt = [*PROMPT, *first.token_ids, *tail]
        answer = engine.answer(prompt, 6)
        assert hit(answer)[1] == 0 and hit(answer)[0] > 60
        assert same(answer, Engine(folder, mode="exact").answer(prompt, 6))


def test_poison_in_every_idle_slot_changes_nothing(folder: Path):
    """Section 7 test 3: NaN in free slots, and in warm ones outside the window."""
    engine = Engine(folder, mode="exact", warm=3)
    first = engine.answer(PROMPT, 9)
    rings = kv_pools(engine.runner).windows
    warm = set(engine.cache.windows.warm)
    end = (len(PROMPT) + 8) // 4 * 4
    for slot in range(1, rings.tags.shape[1]):
        tags = rings.tags[:, slot]
        needed = (tags < end) & (tags > end - 8) & (slot in warm)
        rings.k[:, slot][~needed], rings.v[:, slot][~needed] = torch.nan, torch.nan
    prompt = [*PROMPT, *first.token_ids, *TOOL]
    assert same(engine.answer(prompt, 12), Engine(folder, mode="exact").answer(prompt, 12))


def test_aborted_turn_leaves_its_window(folder: Path):
    """T36: answered rows are valid, and so is their window."""
    engine = Engine(folder, mode="exact", warm=1)
    engine.add("a", PROMPT, 40)
    for _ in range(12):
        engine.step()
    engine.scheduler.abort(AbortRequest(RequestId("a"), "client"), engine.now)
    engine.run()
    prompt = [*PROMPT, *engine.answers["a"].token_ids, *TOOL]
    answer = engine.answer(prompt, 6)
    assert hit(answer)[1] == 0 and hit(answer)[0] > 60
    assert same(answer, Engine(folder, mode="exact").answer(prompt, 6))


def test_mode_off_has_no_hits_and_models_without_warm_slots_replay(folder: Path):
    engine = Engine(folder, warm=1)
    first = engine.answer(PROMPT, 9)
    prompt = [*PROMPT, *first.token_ids, *TOOL]
    assert hit(engine.answer(prompt, 1, replay_mode="off")) == (0, 0)
    plain = Engine(folder, warm=0)
    plain.answer(PROMPT, 9)
    assert hit(plain.answer(prompt, 1)) == (68, 8)


def fork(engine: Engine, count: int) -> None:
    """`count` choices of one prompt, sampled, each with its seed."""
    for i in range(count):
        sampling = SamplingParams(12, temperature=1.0, seed=i)
        parent = RequestId("0") if i else None
        message = GenerateRequest(
            RequestId(str(i)), array("i", PROMPT), sampling, top_logprobs=0, fork_of=parent
        )
        engine.answers[str(i)] = Answer()
        engine.scheduler.add(message, engine.now)
    engine.run()


@pytest.mark.parametrize("mode", ["bounded", "exact"])
@pytest.mark.parametrize("chunk", [256, 48])
def test_four_choices_equal_four_requests_and_prefill_once(folder: Path, mode: str, chunk: int):
    """Sampled with the same seeds, to the bit: bounded too, as nothing is replayed."""
    engine = Engine(folder, mode=mode, chunk=chunk, warm=1)
    fork(engine, 4)
    for i in range(4):
        alone = Engine(folder, mode=mode, chunk=chunk)
        sampling = SamplingParams(12, temperature=1.0, seed=i)
        message = GenerateRequest(RequestId("a"), array("i", PROMPT), sampling, top_logprobs=0)
        alone.answers["a"] = Answer()
        alone.scheduler.add(message, alone.now)
        alone.run()
        assert same(engine.answers[str(i)], alone.answers["a"])
    counters, _ = engine.scheduler.stats()
    assert (counters["fresh_rows"], counters["replay_rows"]) == (61 + 3, 0)
    assert counters["window_copies"] == 3


def test_turns_and_choices_over_http(serve: StartServer, folder: Path):
    """The second turn of a chat replays nothing; four choices cost one prompt."""
    server = serve(str(folder), "--kv-cache-memory", "16M", "--page-size", "4")
    messages = [{"role": "user", "content": "the thread and the loom that weaves"}]
    first = chat(server, messages)
    said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    second = chat(server, [*messages, said, {"role": "user", "content": "and?"}])
    details = second["usage"]["prompt_tokens_details"]
    assert details["replayed_tokens"] == 0
    assert details["cached_tokens"] >= first["usage"]["prompt_tokens"] // 4 * 4
    four = chat(server, [{"role": "user", "content": "for the pattern of cloth"}], n=4)
    assert len(four["choices"]) == 4
    metrics = httpx.get(server.url + "/metrics", timeout=60).text
    value = dict(re.findall(r"^treadle:(window_\w+_total)\{[^}]*\} (\S+)$", metrics, re.M))
    assert float(value["window_copies_total"]) >= 4
    assert float(value["window_donations_total"]) >= 6


def chat(server: Server, messages: list[dict[str, str]], **body: object) -> dict[str, Any]:
    asked = {"model": "m", "messages": messages, "max_tokens": 8, "temperature": 0} | body
    response = httpx.post(server.url + "/v1/chat/completions", json=asked, timeout=120)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
