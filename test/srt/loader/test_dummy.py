"""Random weights: the same for the same seed, at a scale that neither dies nor explodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from test.tiny import tiny_qwen2
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.dummy import DummyWeights
from treadle.srt.loader.names import parameter_shapes


def test_weights_depend_on_seed_and_name_only(tmp_path: Path):
    config = load_model_config(tiny_qwen2(tmp_path))
    first, again, other = (DummyWeights.make(config, seed) for seed in (1, 1, 2))
    for parameter in reversed(first.sizes):  # another order of asking
        again.load(parameter)
    assert torch.equal(first.load("layers.1.q"), again.load("layers.1.q"))
    assert not torch.equal(first.load("layers.1.q"), other.load("layers.1.q"))
    assert not torch.equal(first.load("layers.1.q"), first.load("layers.2.q"))


def test_every_parameter_is_made_at_fan_in_scale(tmp_path: Path):
    config = load_model_config(tiny_qwen2(tmp_path))
    weights = DummyWeights.make(config)
    for parameter, shape in parameter_shapes(config).items():
        values = weights.load(parameter)
        assert tuple(values.shape) == shape
        assert weights.sizes[parameter] == 4 * values.numel()
    assert torch.equal(weights.load("norm"), torch.ones(64))
    assert weights.load("layers.0.down").std().item() == pytest.approx(96**-0.5, rel=0.1)
    assert weights.load("embed").std().item() == pytest.approx(64**-0.5, rel=0.1)
