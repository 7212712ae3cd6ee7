"""Logprobs of prompts: which rows, which hits, once each, through chunks and preemption."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel
from treadle.srt.sched import estimate

from .conftest import Loop, MakeLoop, prompt_logprobs

PROMPT = [(7 * i) % 50 for i in range(40)]


def cached(loop: Loop, rid: str) -> int:
    return loop.done[rid].usage.cached_tokens


@pytest.mark.parametrize("start", [0, 1, 2, 17, 39, 40])
@pytest.mark.parametrize("chunk", [7, 8, 9, 12, 64])
def test_chunks_of_any_size_score_each_token_once(make_loop: MakeLoop, start: int, chunk: int):
    loop = make_loop(chunk_tokens=chunk)
    loop.add("a", PROMPT, logprob_start=start)
    loop.drain()
    assert loop.scores.get("a", []) == prompt_logprobs(PROMPT, start)
    assert len(loop.text["a"]) > 0


def test_a_prompt_alone_may_be_scored(make_loop: MakeLoop):
    """D12: nothing is sampled, all is scored."""
    loop = make_loop(chunk_tokens=12)
    loop.add("a", PROMPT, logprob_start=0, max_new_tokens=0)
    loop.drain()
    assert loop.scores["a"] == prompt_logprobs(PROMPT, 0)
    assert loop.text["a"] == []
    assert loop.done["a"].finish is not None
    assert loop.done["a"].finish.reason == "length"


def test_a_prompt_of_one_token_has_nothing_to_score(make_loop: MakeLoop):
    loop = make_loop()
    loop.add("a", [3], logprob_start=0, max_new_tokens=1)
    loop.drain()
    assert "a" not in loop.scores
    assert len(loop.text["a"]) == 1


@pytest.mark.parametrize(
    ("start", "hit"), [(0, 0), (1, 0), (4, 0), (5, 4), (21, 20), (24, 20), (25, 24), (40, 36)]
)
def test_a_hit_ends_before_the_row_of_the_first_logprob(make_loop: MakeLoop, start: int, hit: int):
    """B26: the logprob of token j comes from row j - 1, which is run."""
    loop = make_loop()
    loop.add("first", PROMPT)
    loop.drain()
    loop.add("a", PROMPT, logprob_start=start)
    loop.drain()
    assert cached(loop, "a") == hit
    assert loop.scores.get("a", []) == prompt_logprobs(PROMPT, start)


def test_what_a_scoring_request_computes_is_published(make_loop: MakeLoop):
    """B28."""
    loop = make_loop()
    loop.add("a", PROMPT, logprob_start=0, max_new_tokens=0)
    loop.drain()
    loop.add("b", PROMPT)
    loop.drain()
    assert cached(loop, "b") == 36


@pytest.mark.parametrize(
    ("mode", "server", "replayed"),
    [(None, "bounded", 14), ("bounded", "bounded", 8), ("exact", "bounded", 14), (None, "off", 0)],
)
def test_a_hit_of_a_scoring_request_is_exact_unless_it_says_otherwise(
    make_loop: MakeLoop, mode: str | None, server: str, replayed: int
):
    loop = make_loop(windows=2, mode=server)
    loop.add("first", PROMPT, replay_mode="exact")
    loop.drain()
    loop.add("a", PROMPT, logprob_start=33, replay_mode=mode)
    loop.drain()
    assert loop.done["a"].usage.replayed_tokens == replayed
    assert loop.scores["a"] == prompt_logprobs(PROMPT, 33)


def test_equal_prompts_that_cannot_share_run_together(make_loop: MakeLoop):
    """T41 holds back only those that would hit."""
    loop = make_loop(num_pages=99)
    for rid in ("a", "b"):
        loop.add(rid, PROMPT[:30] + [1] * 10, logprob_start=0)
    loop.plan()
    assert len(loop.spans()) == 2


def test_preemption_keeps_scores_and_repeats_none(make_loop: MakeLoop, monkeypatch):
    """T43: `Loop` checks that indexes ascend without a gap."""
    monkeypatch.setattr(estimate, "DECAY", 0.1)
    model = FakeModel(stop_rate=0.0)
    loop = make_loop(num_pages=24, conservativeness=0.01, chunk_tokens=9, model=model)
    prompts = {f"r{i}": [(i + 3 * j) % 50 for j in range(20)] for i in range(4)}
    for rid, prompt in prompts.items():
        loop.add(rid, prompt, logprob_start=0, max_new_tokens=30)
    loop.drain()
    assert loop.counters()["preemptions"] > 0
    for rid, prompt in prompts.items():
        assert loop.scores[rid] == prompt_logprobs(prompt, 0)
        assert len(loop.text[rid]) == 30


@pytest.mark.parametrize("at", range(1, 6))
def test_preempted_between_chunks_goes_on_where_it_was(make_loop: MakeLoop, at: int):
    loop = make_loop(chunk_tokens=8, overlap=False)
    loop.add("a", PROMPT, logprob_start=0)
    for _ in range(at):
        loop.step()
    loop.scheduler._preempt(next(iter(loop.scheduler._running)))
    loop.drain()
    assert loop.scores["a"] == prompt_logprobs(PROMPT, 0)


@pytest.mark.parametrize("start", [-1, 41])
def test_a_start_outside_the_prompt_is_refused(make_loop: MakeLoop, start: int):
    loop = make_loop()
    loop.add("a", PROMPT, logprob_start=start)
    assert loop.done["a"].finish is not None
    assert loop.done["a"].finish.status == 400
    assert "0 to 40" in loop.done["a"].finish.message
