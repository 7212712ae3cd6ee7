"""A device against the CPU: the same greedy tokens in float32, cold and after a hit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from test.device_engine import DeviceEngine
from test.engine import Engine
from test.tiny import tiny_gemma3, tiny_llama

ROOT = Path(__file__).parents[3]
CPU_RUN = "from test.srt.worker.test_device_parity import *; show(sys.argv[1])"
GAP = 1e-3  # of logprobs: below it the order of two sums decides which token is best


def answers(engine: Engine) -> list[tuple[list[int], list[float]]]:
    rng = random.Random(5)
    prompts = [[rng.randrange(5, 300) for _ in range(n)] for n in (3, 17, 40, 90, 130)]
    for i, prompt in enumerate(prompts):
        engine.add(f"r{i}", prompt, 16)
    engine.run()
    for prompt in prompts[2:]:
        engine.answer([*prompt, 7, 8, 9], 16)
    return [(x.token_ids, x.logprobs) for x in engine.answers.values()]


def show(folder: str) -> None:
    text = orjson.dumps(answers(Engine(Path(folder), quantization="none")))
    sys.stdout.buffer.write(text)


@pytest.mark.gpu
@pytest.mark.parametrize("write", [tiny_gemma3, tiny_llama], ids=["gemma3", "llama"])
@pytest.mark.parametrize("graphs", [0, 4])
def test_greedy_tokens_are_those_of_the_cpu(tmp_path: Path, write, graphs: int):
    folder = write(tmp_path / "m")
    got = answers(DeviceEngine(folder, graphs=graphs, dtype="float32"))
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "TREADLE_KERNELS": "cpu", "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, "-c", CPU_RUN, str(folder)], capture_output=True, check=True, env=environ
    )
    want = orjson.loads(run.stdout)
    for (ids, logprobs), (want_ids, want_logprobs) in zip(got, want, strict=True):
        assert ids == want_ids
        assert logprobs == pytest.approx(want_logprobs, abs=GAP)
