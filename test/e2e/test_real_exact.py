"""Real weights: a hit in exact mode is a cold run, to the bit."""

from __future__ import annotations

import pytest

from test.e2e.conftest import StartServer
from test.e2e.native import generate, greedy, logprobs, source_ids, usage
from test.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

LONG = pytest.mark.long
GEMMA = "demo:gemma3-270m"
REPLAYING = ("--kv-cache-memory", "512M", "--max-warm-windows", "0")


def window(rows: int) -> tuple[str, str]:
    return "--json-model-override-args", f'{{"gemma3.attention.sliding_window": {rows}}}'


def exact_equals_cold(server: Server, *, hit: int, exact_rows: int) -> None:
    """A hit of `hit` rows in exact mode against a run without the cache, to the bit."""
    prompt = source_ids(server, hit + 60)
    assert len(prompt) == hit + 60
    generate(server, input_ids=prompt[: hit + 1], sampling_params=greedy(1))
    asked = {"input_ids": prompt, "return_logprob": True, "sampling_params": greedy(8)}
    warm = generate(server, swa_replay="exact", **asked)
    cold = generate(server, swa_replay="off", **asked)
    assert usage(warm) == (hit + 60, hit, exact_rows)
    assert usage(cold) == (hit + 60, 0, 0)
    assert warm["output_ids"] == cold["output_ids"]
    assert logprobs(warm) == logprobs(cold)


@pytest.mark.parametrize(("rows", "hit"), [(32, 496), pytest.param(64, 1008, marks=LONG)])
def test_exact_hit_of_the_real_model_equals_cold_to_the_bit(
    serve: StartServer, rows: int, hit: int
):
    """The window is cut, or an exact replay of 15 window layers would be 7,665 rows."""
    server = serve(GEMMA, *REPLAYING, *window(rows))
    exact_equals_cold(server, hit=hit, exact_rows=15 * (rows - 1))


@pytest.mark.long
def test_exact_hit_equals_cold_to_the_bit_on_the_reference_path(
    serve: StartServer, monkeypatch: pytest.MonkeyPatch
):
    """In float32 on the torch references, with the window cut further to be affordable."""
    monkeypatch.setenv("TREADLE_KERNELS", "reference")
    server = serve(GEMMA, *REPLAYING, "--quantization", "none", *window(8))
    exact_equals_cold(server, hit=160, exact_rows=15 * 7)
