"""Shapes in place of values: those that the files would give, without memory."""

from __future__ import annotations

import pytest
import torch

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.meta import MetaWeights
from treadle.srt.loader.packed import PackedWeights

NANO = CHECKPOINTS / "v41-nano"
EXPERTS = [[f"layers.0.ffn.experts.{e}.{p}.weight" for p in ("w1", "w3")] for e in range(3)]


@pytest.mark.parametrize(
    "take",
    [
        lambda w: w.raw("layers.1.engram.embed.weight"),
        lambda w: w.raw("layers.1.engram.embed.scale"),
        lambda w: w.dense("embed.weight"),
        lambda w: w.dense("layers.0.hc_attn_fn"),
        lambda w: w.scaled("layers.0.attn.wq_a", "layers.0.attn.wkv").data,
        lambda w: w.stacked(EXPERTS),
    ],
    ids=["table", "scales", "bf16", "fp32", "scaled", "experts"],
)
def test_shape_and_dtype_are_those_of_the_files(take):
    config = load_model_config(NANO)
    meta, real = take(MetaWeights.of(config)), take(PackedWeights.open(NANO, config))
    assert (meta.shape, meta.dtype) == (real.shape, real.dtype)
    assert meta.device == torch.device("meta")


def test_what_was_taken_is_known_with_its_scales():
    weights = MetaWeights.of(load_model_config(NANO))
    weights.scaled("layers.0.attn.wq_a")
    weights.stacked(EXPERTS[:1])
    assert sorted(weights.asked) == [
        "layers.0.attn.wq_a.scale",
        "layers.0.attn.wq_a.weight",
        *EXPERTS[0],
    ]
