"""Served drafts: the same greedy output as without, over hits, chunks, batches, limits, preemption.

Both engines run the same rows of a request, one at a time or several to verify; as a row's bits do
not depend on those beside it, outputs are equal to the id, and logprobs to the bit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from test.engine import Answer, Engine
from test.v41 import CHECKPOINTS, golden
from treadle.srt.messages import AbortRequest, RequestId, SamplingParams

NANO = CHECKPOINTS / "v41-nano"


def engine(drafts: int, path: Path = NANO, **options: object) -> Engine:
    return Engine(path, quantization="none", drafts=drafts, **options)  # type: ignore[arg-type]


def pair(**options: object) -> tuple[Engine, Engine]:
    """Both plan after the last answer: when a page of a prompt gives way to that of the tree (T14),
    the next row sees it or not by when it was planned."""
    return engine(0, overlap=False, **options), engine(5, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def text() -> list[int]:
    ids: list[int] = golden("v41-nano", "cold_777")["ids"].tolist()
    return ids


def same(found: Answer, wanted: Answer) -> None:
    assert found.token_ids == wanted.token_ids
    assert found.logprobs == wanted.logprobs
    assert found.reason == wanted.reason
    assert found.usage == wanted.usage


def counters(spec: Engine) -> dict[str, float]:
    return spec.scheduler.stats()[0]


def test_drafts_are_proposed_and_accepted_rows_enter_the_context(text: list[int]):
    spec = engine(5)
    spec.answer(text[:40], 12)
    drafter = spec.runner.engine.drafter
    assert drafter is not None
    ring = drafter.head.blocks[0].attention.shape.layer
    held = drafter.pools.tags[ring]
    assert int(held.max()) == 40 + 12 - 2  # the last token is never run
    assert counters(spec)["spec_verify_spans"] > 0
    assert counters(spec)["spec_draft_tokens"] >= counters(spec)["spec_accepted_tokens"]


@pytest.mark.parametrize("warm", [0, 2])
def test_cold_and_warm_outputs_are_those_without_drafts(text: list[int], warm: int):
    """With a replay, and with a window that is there still."""
    plain, spec = pair(warm=warm, chunk=256)
    for size in (3, 100, 161, 300):
        for _ in range(2):
            wanted = plain.answer(text[:size], 8)
            same(spec.answer(text[:size], 8), wanted)
        follow = [*text[:size], *wanted.token_ids, 5, 6]
        same(spec.answer(follow, 6), plain.answer(follow, 6))
    assert counters(spec)["prefix_hit_tokens"] > 0
    assert counters(spec)["window_takeovers"] + counters(spec)["window_copies"] > 0 or not warm


@pytest.mark.parametrize("drafts", [1, 3])
def test_fewer_drafts_give_the_same(text: list[int], drafts: int):
    wanted = engine(0).answer(text[:50], 16)
    same(engine(drafts).answer(text[:50], 16), wanted)


def test_a_batch_gives_what_each_gives_alone(text: list[int]):
    """Prompts in chunks beside decode rows and drafts."""
    plain, spec = pair(chunk=160)
    prompts = [text[i * 60 : i * 60 + 40 + 70 * i] for i in range(5)]
    for index, prompt in enumerate(prompts):
        spec.add(f"b{index}", prompt, 10)
        spec.step()
    spec.run()
    for index, prompt in enumerate(prompts):
        same(spec.answers[f"b{index}"], plain.answer(prompt, 10))


def test_first_stop_id_ends_as_without_drafts(text: list[int]):
    plain, spec = pair()
    free = plain.answer(text[:60], 20).token_ids
    for stop in (free[3], free[9]):
        params = SamplingParams(20, temperature=0.0, stop_token_ids=(stop,), min_new_tokens=2)
        wanted = plain.answer(text[60:120], 20, sampling=params)
        same(spec.answer(text[60:120], 20, sampling=params), wanted)
        wanted = plain.answer(text[:60], 20, sampling=params)
        same(spec.answer(text[:60], 20, sampling=params), wanted)
        assert wanted.reason == "stop"


def test_penalties_and_bias_apply_place_by_place(text: list[int]):
    plain, spec = pair()
    params = SamplingParams(
        24,
        temperature=0.0,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias=((7, 2.0),),
    )
    wanted = plain.answer(text[:70], 24, sampling=params)
    same(spec.answer(text[:70], 24, sampling=params), wanted)


def test_preemption_and_abort_change_no_other_output(text: list[int]):
    """Exact replays, so that what is resumed goes on as it was."""
    plain, spec = engine(0, mode="exact"), engine(5, mode="exact")
    prompts = [text[i * 50 : i * 50 + 30] for i in range(3)]
    wanted = [plain.answer(prompt, 24) for prompt in prompts]
    for index, prompt in enumerate(prompts):
        spec.add(f"p{index}", prompt, 24)
    spec.add("gone", text[200:240], 24)
    for _ in range(3):
        spec.step()
    spec.scheduler.abort(AbortRequest(RequestId("gone"), "client"), spec.now)
    spec.preempt_all()
    spec.run()
    assert counters(spec)["preemptions"] > 0
    assert spec.answers["gone"].reason == "abort"
    for index, answer in enumerate(wanted):
        assert spec.answers[f"p{index}"].token_ids == answer.token_ids


def test_sampled_requests_draw_the_same_again_and_accept_drafts(text: list[int]):
    params = SamplingParams(40, temperature=1.0, seed=3)
    first, second = (engine(5).answer(text[:50], 40, sampling=params) for _ in range(2))
    assert first.token_ids == second.token_ids and len(first.token_ids) == 40
