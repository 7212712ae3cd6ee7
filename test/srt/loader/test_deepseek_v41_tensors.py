"""The tensors of the released model, counted from its configuration."""

from __future__ import annotations

import math
import shutil
from collections import Counter

import pytest

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.deepseek_v41_tensors import E8M0, FP4, tensor_specs

VISION_TENSORS = 266
ALL_TENSORS = 96_085
PARAMETERS = 763.21e9  # all, of which about 0.48e9 are vision's
VISION_PARAMETERS = 0.48e9


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("released")
    shutil.copy(CHECKPOINTS / "deepseek_v41_flash.json", folder / "config.json")
    return tensor_specs(load_model_config(folder))


def test_released_tensors_are_those_of_the_census(released):
    assert len(released) == ALL_TENSORS - VISION_TENSORS
    kinds = Counter(name.split(".", 2)[-1] for name in released if name.startswith("layers."))
    assert kinds["attn.wq_a.weight"] == 40
    assert kinds["attn.compressor.wkv.weight"] == 4
    assert kinds["attn.compressor.wgate.weight"] == 3
    assert kinds["attn.indexer.wq_b.weight"] == 8
    assert kinds["attn.indexer.wk.weight"] == 4
    assert sum(kinds[f"ffn.experts.{e}.w1.weight"] for e in range(384)) == 15_360


def test_released_parameters_are_those_of_the_report(released):
    total = 0
    for spec in released.values():
        if not (spec.name.endswith(".scale") and E8M0 in spec.dtypes):
            total += math.prod(spec.shape) * (2 if FP4 in spec.dtypes else 1)
    assert abs(total - (PARAMETERS - VISION_PARAMETERS)) < 0.02e9


def test_a_few_shapes_are_those_of_the_table(released):
    shapes = {name: spec.shape for name, spec in released.items()}
    assert shapes["layers.0.attn.wq_b.weight"] == (32768, 1280)
    assert shapes["layers.0.attn.wq_b.scale"] == (1024, 40)
    assert shapes["layers.39.ffn.experts.383.w2.weight"] == (5120, 1152)
    assert shapes["layers.39.ffn.experts.383.w2.scale"] == (5120, 72)
    assert shapes["layers.1.engram.embed.weight"] == (384_006_168, 256)
    assert shapes["layers.1.engram.wkv.weight"] == (25600, 6144)
    assert shapes["mtp.0.main_proj.weight"] == (5120, 15360)
    assert shapes["mtp.2.confidence_head.proj.weight"] == (1, 5376)
    assert shapes["layers.5.hc_attn_fn"] == (24, 20480)
