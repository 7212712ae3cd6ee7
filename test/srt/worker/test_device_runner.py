"""The runner of a device, on the CPU: the same answers as the reference runner, one step late."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest
import torch

from test.device_engine import CPU, DeviceEngine
from test.engine import Engine
from test.srt.worker.test_runner import PROMPT, plan
from test.tiny import tiny_gemma3, tiny_llama
from test.v41 import CHECKPOINTS
from treadle.srt.messages import PageUpdate, RowSpan, SamplingParams
from treadle.srt.worker.device_batch import DeviceSlots
from treadle.srt.worker.device_runner import DeviceRunner

RNG = random.Random(3)
PROMPTS = [[RNG.randrange(5, 300) for _ in range(n)] for n in (3, 40, 90, 17)]


@pytest.fixture(scope="module", params=[tiny_gemma3, tiny_llama], ids=["gemma3", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return request.param(tmp_path_factory.mktemp("model"))


def answers(engine: Engine, params: list[SamplingParams], **fields: object) -> list[list[int]]:
    """All prompts at once, then the longest again with more behind it: a hit."""
    for i, (prompt, sampling) in enumerate(zip(PROMPTS, params, strict=True)):
        engine.add(f"r{i}", prompt, 12, sampling=sampling, **fields)
    engine.run()
    again = PROMPTS[2] + engine.answers["r2"].token_ids + [7, 8, 9]
    engine.answer(again, 8, sampling=params[2], **fields)
    return [x.token_ids for x in engine.answers.values()]


def sampling(**fields: object) -> SamplingParams:
    return SamplingParams(max_new_tokens=12, **fields)  # type: ignore[arg-type]


GREEDY = sampling(temperature=0.0)
MIXED = [
    sampling(seed=1),
    sampling(seed=2, top_k=5, top_p=0.9),
    sampling(seed=3, min_p=0.05, temperature=1.5),
    sampling(temperature=0.0, repetition_penalty=1.3),
]
ADJUSTED = [
    sampling(temperature=0.0, frequency_penalty=0.7, presence_penalty=0.3),
    sampling(seed=5, repetition_penalty=1.2, top_k=20),
    sampling(temperature=0.0, logit_bias=((11, 9.0), (12, -3.0))),
    sampling(seed=9, min_new_tokens=8, stop_token_ids=tuple(range(0, 300, 2))),
]


KINDS = {"greedy": [GREEDY] * 4, "drawn": MIXED, "adjusted": ADJUSTED}


@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS)
def test_answers_are_those_of_the_reference_runner(folder: Path, params: list[SamplingParams]):
    want, got = Engine(folder, quantization="none"), DeviceEngine(folder)
    assert answers(got, params) == answers(want, params)
    for rid, answer in want.answers.items():
        assert got.answers[rid].logprobs == pytest.approx(answer.logprobs, abs=1e-6)


def test_answers_do_not_depend_on_chunks_neighbours_or_preemption(folder: Path):
    want = answers(DeviceEngine(folder), MIXED)
    assert answers(DeviceEngine(folder, chunk=64), MIXED) == want
    alone = DeviceEngine(folder)
    for prompt, params, tokens in zip(PROMPTS, MIXED, want, strict=False):
        assert alone.answer(prompt, 12, sampling=params).token_ids == tokens
    want = answers(DeviceEngine(folder, mode="exact"), MIXED)
    taken = DeviceEngine(folder, mode="exact")
    for i, (prompt, params) in enumerate(zip(PROMPTS, MIXED, strict=True)):
        taken.add(f"r{i}", prompt, 12, sampling=params)
    for _ in range(6):
        taken.step()
    taken.preempt_all()
    taken.run()
    assert [x.token_ids for x in taken.answers.values()] == want[:4]


@pytest.mark.parametrize("params", [[GREEDY] * 4, MIXED], ids=["greedy", "drawn"])
def test_latent_model_answers_as_with_the_reference_runner(params: list[SamplingParams]):
    """n-grams of ids that are on the device only, a trimmed prompt, a hit that is replayed."""
    folder, long = CHECKPOINTS / "v41-nano", [RNG.randrange(5, 300) for _ in range(300)]
    told = []
    for make in (lambda: Engine(folder, quantization="none"), lambda: DeviceEngine(folder)):
        engine = make()
        found = answers(engine, params)
        found.append(engine.answer(long, 8, sampling=params[0]).token_ids)
        told.append([*found, engine.answer([*long, 5, 6, 7], 8, sampling=params[1]).token_ids])
    assert told[0] == told[1]


def test_canonical_grid_points_of_latents_are_those_of_the_reference_runner(
    monkeypatch: pytest.MonkeyPatch,
):
    """At a grid point n-grams go on from the ids before the rows that are run again (B35)."""
    folder, prompt = CHECKPOINTS / "v41-nano", [RNG.randrange(5, 300) for _ in range(1030)]
    begun, begin = [], DeviceSlots.begin

    def counting(slots: DeviceSlots, starting: list[int]) -> None:
        begun.extend(starting)
        begin(slots, starting)
        assert torch.equal(slots.recent[starting], torch.from_numpy(slots.host.recent)[starting])

    monkeypatch.setattr(DeviceSlots, "begin", counting)
    told = []
    for make in (
        lambda: Engine(folder, quantization="none", mode="canonical"),
        lambda: DeviceEngine(folder, mode="canonical"),
    ):
        engine = make()
        told.append([engine.answer(prompt, 6) for _ in range(2)])
    for want, got in zip(*told, strict=True):
        assert (got.token_ids, got.usage) == (want.token_ids, want.usage)
        assert got.logprobs == pytest.approx(want.logprobs, abs=1e-5)
    assert len(begun) == 3  # cold, at its one grid point, and after the hit


def test_prompt_scores_are_those_of_the_reference_runner(folder: Path):
    want, got = Engine(folder, quantization="none"), DeviceEngine(folder)
    for engine in (want, got):
        engine.answer(
            PROMPTS[1], 3, logprob_start=0, top_logprobs=2, logprob_ids=array("i", [5, 6])
        )
    for one, other in zip(got.answers["r0"].scores, want.answers["r0"].scores, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-6)
        assert (one.ranks, one.top_ids) == (other.ranks, other.top_ids)


def test_processed_logprobs_are_those_of_the_reference_runner(folder: Path):
    want, got = Engine(folder, quantization="none"), DeviceEngine(folder)
    for engine in (want, got):
        engine.runner.has_processed_logprobs = True
        engine.answer(PROMPTS[1], 8, sampling=ADJUSTED[1])
    assert got.answers["r0"].logprobs == pytest.approx(want.answers["r0"].logprobs, abs=1e-6)


def test_next_step_is_launched_before_the_last_is_answered(folder: Path):
    """The token of a decode row never passes through the host."""
    told = Engine(folder, quantization="none").runner
    first = told.execute(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT))
    second = told.execute(plan(2, RowSpan(1, 20, 20, 21, 1), list(first.token_ids)))
    ahead = DeviceEngine(folder).device
    steps = [
        ahead.launch(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT)),
        ahead.launch(plan(2, RowSpan(1, 20, 20, 21, 1), [-1])),
    ]
    assert [x.result().token_ids for x in steps] == [first.token_ids, second.token_ids]


def test_rows_with_nan_are_reported(folder: Path):
    """T13."""
    engine = DeviceEngine(folder)
    engine.device.launch(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT)).result()
    pools = engine.runner.engine.pools
    pools.pages.v[:, 1:6] = torch.nan  # type: ignore[attr-defined]
    out = engine.device.launch(plan(2, RowSpan(1, 20, 20, 21, 1), [-1])).result()
    assert out.bad == (0,)


def test_device_table_mirrors_the_hosts(folder: Path):
    engine = DeviceEngine(folder)
    device: DeviceRunner = engine.device
    updates = (
        PageUpdate(3, 2, array("i", [7, 8])),
        PageUpdate(3, 3, array("i", [9])),
        PageUpdate(1, 0, array("i", [4])),
    )
    for update in updates:
        device.base.slots.update_pages(update)
    device.slots.mirror(updates)
    assert torch.equal(device.slots.page_table, torch.from_numpy(device.base.slots.page_table))
    assert device.slots.page_table[3, 2:4].tolist() == [7, 9]
    assert device.device == CPU
