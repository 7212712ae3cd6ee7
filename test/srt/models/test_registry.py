"""Every family agrees with transformers on a tiny random checkpoint, cold, chunked and decoding."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from test.driver import Driver, Row, toy_config
from test.loading import load_runner
from test.tiny import Form, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from treadle.srt.errors import ConfigError
from treadle.srt.models.decoder import Parameters
from treadle.srt.models.registry import MODELS, build_model

WRITERS = {
    "llama": tiny_llama,
    "qwen2": tiny_qwen2,
    "qwen3": tiny_qwen3,
    "gemma3": tiny_gemma3,
}
LLAMA3_ROPE = {
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}
TOKENS = random.Random(1).choices(range(5, 320), k=90)


def reference_logits(folder: Path, tokens: list[int]) -> Tensor:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


def engine_logits(folder: Path, tokens: list[int]) -> Tensor:
    """Rows 29 and 49 from chunks of a prompt, the rest decoded one by one."""
    driver = Driver(load_runner(folder))
    driver.enter(1, tokens)
    out = [driver.step([Row(1, 0, 0, 30)]), driver.step([Row(1, 30, 30, 50)])]
    out += [driver.step([Row(1, i, i, i + 1)]) for i in range(50, len(tokens))]
    return torch.cat(out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", WRITERS)
def test_logits_agree_with_transformers(family: str, tmp_path: Path):
    folder = WRITERS[family](tmp_path / "model")
    expected = reference_logits(folder, TOKENS)[[29, 49, *range(50, 90)]]
    torch.testing.assert_close(engine_logits(folder, TOKENS), expected, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [LLAMA3_ROPE, {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}],
    ids=["llama3", "linear"],
)
def test_scaled_rope_agrees_with_transformers(changes: dict[str, object], tmp_path: Path):
    folder = tiny_llama(tmp_path / "model", Form(changes=changes))
    expected = reference_logits(folder, TOKENS)[[29, 49, *range(50, 90)]]
    torch.testing.assert_close(engine_logits(folder, TOKENS), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("writer", WRITERS.values())
def test_int8_weights_stay_close(writer: Callable[[Path], Path], tmp_path: Path):
    folder = writer(tmp_path / "model")
    dense = Driver(load_runner(folder)).cold(1, TOKENS)
    packed = Driver(load_runner(folder, quantization="q8_0")).cold(1, TOKENS)
    a, b = torch.log_softmax(dense, 0), torch.log_softmax(packed, 0)
    assert 0 < float((a.exp() * (a - b)).sum()) < 0.02


def test_unknown_architecture_is_refused_by_name():
    config = toy_config()
    odd = Parameters(config, {}, {}, torch.float32)
    object.__setattr__(config, "architecture", "MysteryForCausalLM")
    with pytest.raises(ConfigError, match="MysteryForCausalLM.*supported"):
        build_model(odd)


def test_every_registered_architecture_has_a_parity_test():
    assert {name.removesuffix("ForCausalLM").lower() for name in MODELS} == set(WRITERS)
