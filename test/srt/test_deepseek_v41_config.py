"""The structure of DeepSeek-V4.1 from its configuration: roles of layers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError, ConfigError

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"


def load(tmp_path, **override):
    config = json.loads((CHECKPOINTS / "deepseek_v41_flash.json").read_text())
    config["text_config"].update(override)
    (tmp_path / "config.json").write_text(json.dumps(config))
    return load_model_config(tmp_path)


def test_released_roles(tmp_path):
    config = load(tmp_path)
    latent = config.latent
    assert latent.cut == 20
    assert [latent.kv_source(i) for i in (2, 7, 8, 19, 20, 39)] == [2, 2, 8, 14, 20, 20]
    assert [latent.index_source(i) for i in (7, 19, 23, 24, 31, 39)] == [2, 14, 20, 24, 28, 36]
    assert latent.lookback == 3
    assert config.window == 128 and len(config.window_layers) == 40 and not config.global_layers
    assert config.replay_slope == 0  # B38
    assert config.eos_ids == (1,)


@pytest.mark.parametrize("name", ["v41-mini", "v41-nano"])
def test_small_checkpoints_are_read(name):
    config = load_model_config(CHECKPOINTS / name)
    assert config.latent.ratios[config.latent.cut] == 1
    assert config.latent.draft.num_blocks in (1, 2)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_act", "gelu", "hidden_act"),
        ("scoring_func", "softmax", "scoring_func"),
        ("tie_word_embeddings", True, "tie_word_embeddings"),
        ("rope_scaling", {"rope_type": "linear", "factor": 2}, "rope_type"),
    ],
)
def test_other_arithmetic_is_refused_by_name(tmp_path, key, value, says):
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_source_layer_ids", [8, 2, 14, 20]),
        ("kv_source_layer_ids", []),
        ("index_source_layer_ids", [2, 8, 14]),
        ("candidate_source_layer_id", 14),
        ("engram_layer_ids", [1, 20]),
        ("dspark_target_layer_ids", [19]),
        ("compress_ratios", [0, 0] + [2] * 17 + [1] * 21 + [0, 0, 0]),
        ("compress_ratios", [0, 0] + [2] * 38 + [0, 0, 0]),
        ("compress_ratios", [0, 0]),
        ("engram_num_embeddings", [5]),
        ("compress_ratios", "no list"),
    ],
)
def test_a_structure_that_contradicts_itself_is_refused_by_name(tmp_path, key, value):
    with pytest.raises(CheckpointError, match=key):
        load(tmp_path, **{key: value})
