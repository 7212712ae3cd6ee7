"""DeepSeek-V4.1 as a worker loads it: capacities, row counts of a plan, refusals."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from test.loading import CACHE, HOST, SCHED, load_runner
from test.v41 import CHECKPOINTS, loaded
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import ModelSection, ServerConfig
from treadle.srt.errors import ConfigError
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.models.held import held_bytes
from treadle.srt.resolve import resolve
from treadle.srt.worker import latent_engine
from treadle.srt.worker.runner import Runner

NANO = CHECKPOINTS / "v41-nano"


def prompt_plan(size: int, trim_end: int) -> StepPlan:
    reset = SlotReset(1, 0, 0, 0, 1, size, 0, SamplingParams(4, temperature=0.0), trim_end=trim_end)
    return StepPlan(
        0,
        array("i", [1, 0, 0, size, 1]),
        array("i", [17 + i % 200 for i in range(size)]),
        resets=(reset,),
        pages=(PageUpdate(1, 0, array("i", range(1, -(-size // 4) + 1))),),
    )


def test_capacity_is_what_the_layout_says():
    runner = load_runner(NANO)
    ready = runner.capacity(0)
    assert ready.num_slots == 1 + 2 * SCHED.max_running  # half of them for warm windows
    assert ready.kv_bytes <= CACHE.memory_bytes
    assert ready.weight_bytes == held_bytes(loaded("v41-nano", is_exact=False).model)


def test_a_model_larger_than_the_memory_is_loaded_with_a_warning(monkeypatch, caplog):
    little = replace(HOST, available_bytes=1 << 20)
    monkeypatch.setattr(latent_engine, "read_host_facts", lambda: little)
    needed = load_runner(NANO).capacity(0).weight_bytes
    assert f"weight_bytes={needed} available_bytes={1 << 20}" in caplog.text


@pytest.mark.parametrize(("rule", "trimmed"), [("auto", True), ("prompt", True), ("off", False)])
def test_a_cold_prompt_runs_all_rows_in_the_encoder_and_one_window_in_the_decoder(rule, trimmed):
    runner = load_runner(NANO, cache=replace(CACHE, trim_rule=rule))
    result = runner.execute(prompt_plan(200, trim_end=200))
    cut, layers = runner.config.latent.cut, len(runner.config.layers)
    above = 128 if trimmed else 200
    assert result.layer_rows == (200,) * (cut + 1) + (above,) * (layers - cut - 1)


def test_a_request_that_is_not_to_be_trimmed_is_not():
    runner = load_runner(NANO)
    result = runner.execute(prompt_plan(200, trim_end=0))
    assert result.layer_rows == (200,) * len(runner.config.layers)


@pytest.mark.parametrize("kind", ["fp4", "fp8", "bfloat16", "float32"])
def test_every_form_of_the_caches_serves_the_same_likely_token(kind):
    runner = load_runner(NANO, cache=replace(CACHE, kv_dtype=kind))
    token = runner.execute(prompt_plan(100, trim_end=100)).token_ids[0]
    assert 0 <= token < runner.config.vocab_size


def refused(model: ModelSection, **cache) -> str:
    facts = load_model_config(NANO)
    with pytest.raises(ConfigError) as caught:
        config = resolve(ServerConfig(model, replace(CACHE, **cache), SCHED), facts, HOST)
        Runner.load(config, facts, NANO, lambda *_: None)
    return caught.value.message


def test_what_it_cannot_do_is_refused_by_flag():
    assert "--load-format dummy" in refused(ModelSection(path=str(NANO), load_format="dummy"))
    assert "--kv-cache-dtype float16" in refused(ModelSection(path=str(NANO)), kv_dtype="float16")
