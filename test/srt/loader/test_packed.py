"""Packed checkpoints: what is read raw, and errors that name tensor, expected and found."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.kernels import ops
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError
from treadle.srt.loader.packed import PackedWeights

NANO = CHECKPOINTS / "v41-nano"


@pytest.fixture(scope="module")
def tensors():
    return load_file(NANO / "model.safetensors")


def rewrite(tmp_path, tensors):
    shutil.copy(NANO / "config.json", tmp_path)
    save_file(tensors, tmp_path / "model.safetensors")
    return PackedWeights.open(tmp_path, load_model_config(tmp_path))


def test_packed_bytes_are_given_raw_and_the_rest_in_fp32(tensors):
    weights = PackedWeights.open(NANO, load_model_config(NANO))
    assert weights.raw("layers.0.ffn.experts.0.w1.weight").dtype == torch.uint8
    assert weights.raw("layers.0.attn.wkv.scale").dtype == torch.uint8
    assert weights.raw("layers.0.attn.wkv.weight").dtype == torch.float8_e4m3fn
    assert weights.dense("embed.weight").dtype == torch.float32
    joined = weights.scaled("layers.0.attn.wq_a", "layers.0.attn.wkv")
    assert (joined.out_features, joined.in_features) == (64, 64)
    codes, scales = tensors["layers.0.attn.wkv.weight"], tensors["layers.0.attn.wkv.scale"]
    want = ops.fp8_tiles(codes, scales.view(torch.uint8))
    assert torch.equal(ops.unpack_matrix(joined)[-len(want) :], want)


def test_stacked_bytes_are_those_of_the_experts_joined_along_outputs(tensors):
    weights = PackedWeights.open(NANO, load_model_config(NANO))
    names = [[f"layers.0.ffn.experts.{e}.{p}.weight" for p in ("w1", "w3")] for e in range(3)]
    found = weights.stacked(names)
    expected = torch.stack([torch.cat([tensors[x] for x in parts]) for parts in names])
    assert torch.equal(found, expected.view(torch.uint8))


def test_progress_is_told_in_bytes():
    told: list[tuple[int, int, str]] = []
    config = load_model_config(NANO)
    weights = PackedWeights.open(NANO, config, lambda *progress: told.append(progress))
    for layer in range(4):
        weights.made(layer, 4)
    size = weights.num_bytes
    assert told[0] == (size // 4, size, "layers.0") and told[-1] == (size, size, "layers.3")


def test_a_missing_tensor_is_named(tmp_path, tensors):
    left = {k: v for k, v in tensors.items() if k != "layers.2.attn.wkv.scale"}
    with pytest.raises(CheckpointError, match=r"layers\.2\.attn\.wkv\.scale.*found none"):
        rewrite(tmp_path, left)


def test_an_extra_tensor_is_named_but_vision_is_left_alone(tmp_path, tensors):
    rewrite(tmp_path, {**tensors, "vision.blocks.0.w": torch.zeros(2)})
    with pytest.raises(CheckpointError, match=r"layers\.99\.x.*model lacks"):
        rewrite(tmp_path, {**tensors, "layers.99.x": torch.zeros(2)})


@pytest.mark.parametrize(
    ("tensor", "found"),
    [(torch.zeros(3, dtype=torch.bfloat16), "BF16"), (torch.zeros(64), "F32")],
    ids=["shape", "dtype"],
)
def test_a_wrong_tensor_is_named_with_both_forms(tmp_path, tensors, tensor, found):
    with pytest.raises(
        CheckpointError, match=rf"norm\.weight: expected BF16 \[64\], found {found}"
    ):
        rewrite(tmp_path, {**tensors, "norm.weight": tensor})
