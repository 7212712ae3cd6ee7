"""GGUF tensors equal the safetensors of the same weights, in our row order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from test.tiny import PLAIN, Form, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from test.tiny_gguf import write_gguf
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError
from treadle.srt.gguf import GgufFile
from treadle.srt.loader import gguf_tensors
from treadle.srt.loader.gguf_tensors import GgufWeights, raw, rotate_half_order
from treadle.srt.loader.safetensors import SafetensorsWeights

Writer = Callable[[Path, Form], Path]
Kind = gguf.GGMLQuantizationType
FAMILIES = [tiny_llama, tiny_qwen2, tiny_qwen3, tiny_gemma3]


def load(source: GgufWeights | SafetensorsWeights) -> dict[str, Tensor]:
    return {parameter: source.load(parameter) for parameter in source.sizes}


def load_gguf(path: Path) -> dict[str, Tensor]:
    return load(GgufWeights.open(path, load_model_config(path)))


def load_folder(folder: Path) -> dict[str, Tensor]:
    return load(SafetensorsWeights.open(folder, load_model_config(folder)))


@pytest.mark.parametrize("writer", FAMILIES)
def test_f32_equals_safetensors(tmp_path: Path, writer: Writer):
    folder = writer(tmp_path, PLAIN)
    expected = load_folder(folder)
    found = load_gguf(write_gguf(folder, tmp_path / "m.gguf"))
    assert list(found) == list(expected)
    for parameter, values in expected.items():
        assert torch.equal(found[parameter], values), parameter


@pytest.mark.parametrize("writer", FAMILIES)
@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0])
def test_narrow_types_equal_the_gguf_package(tmp_path: Path, writer: Writer, kind: Kind):
    folder = writer(tmp_path, PLAIN)
    found = load_gguf(write_gguf(folder, tmp_path / "m.gguf", kind))
    for parameter, values in load_folder(folder).items():
        if values.ndim == 2:
            encoded = gguf.quants.quantize(values.numpy(), kind)
            values = torch.from_numpy(gguf.quants.dequantize(encoded, kind).astype(np.float32))
        assert torch.equal(found[parameter], values), parameter


def test_rotate_half_order_undoes_the_interleaving():
    ours = torch.arange(2 * 6)  # two heads of six rows
    stored = ours.view(2, 2, 3).transpose(1, 2).reshape(-1)
    assert stored[:6].tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(stored[rotate_half_order(2, 6)], ours)


def test_biases_of_llama_are_put_back_too(tmp_path: Path):
    folder = tiny_llama(tmp_path, Form(changes={"attention_bias": True}))
    expected = load_folder(folder)
    found = load_gguf(write_gguf(folder, tmp_path / "m.gguf"))
    for part in ("q_bias", "k_bias", "v_bias", "o_bias"):
        assert torch.equal(found[f"layers.1.{part}"], expected[f"layers.1.{part}"])


def test_expanding_in_chunks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tiny_llama(tmp_path)
    path = write_gguf(folder, tmp_path / "m.gguf", Kind.Q8_0)
    whole = load_gguf(path)
    for elements in (1, 64 * 7):  # a row at a time; seven rows, which divide nothing here
        monkeypatch.setattr(gguf_tensors, "CHUNK_ELEMENTS", elements)
        parts = load_gguf(path)
        assert all(torch.equal(whole[k], parts[k]) for k in whole)


def test_raw_is_a_view_of_the_file(tmp_path: Path):
    file = GgufFile.open(write_gguf(tiny_llama(tmp_path), tmp_path / "m.gguf"))
    first, second = raw(file, "output_norm.weight"), raw(file, "output_norm.weight")
    assert first.data_ptr() == second.data_ptr()
    assert first.dtype == torch.uint8
    assert first.numel() == 64 * 4


def test_tensors_outlive_the_file_object(tmp_path: Path):
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "m.gguf")
    tensor = raw(GgufFile.open(path), "output_norm.weight")
    path.unlink()
    assert torch.isfinite(tensor.view(torch.float32)).all()


def test_config_of_another_model_is_refused(tmp_path: Path):
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "m.gguf")
    config = load_model_config(path)
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_q_norm\.weight"):
        GgufWeights.open(path, replace(config, qk_norm=True))
    with pytest.raises(CheckpointError, match=r"ffn_gate\.weight: expected shape \[48, 64\]"):
        GgufWeights.open(path, replace(config, intermediate_size=48))
    with pytest.raises(CheckpointError, match=r"output\.weight: expected only"):
        GgufWeights.open(path, replace(config, tie_embeddings=True))
