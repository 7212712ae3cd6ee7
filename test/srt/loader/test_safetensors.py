"""Hugging Face folders: values, shards, dtypes, and every way in which a folder can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from test.tiny import PLAIN, Form, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError
from treadle.srt.loader.safetensors import SafetensorsWeights
from treadle.srt.loader.tensor_folder import INDEX

Writer = Callable[[Path, Form], Path]
EMBED = "model.embed_tokens.weight"


def load(folder: Path) -> dict[str, Tensor]:
    weights = SafetensorsWeights.open(folder, load_model_config(folder))
    return {parameter: weights.load(parameter) for parameter in weights.sizes}


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = {k: v.clone() for k, v in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_values_are_the_files(tmp_path: Path):
    found = load(tiny_llama(tmp_path))
    stored = load_file(tmp_path / "model.safetensors")
    assert torch.equal(found["embed"], stored[EMBED])
    assert torch.equal(found["layers.2.k"], stored["model.layers.2.self_attn.k_proj.weight"])
    assert torch.equal(found["lm_head"], stored["lm_head.weight"])
    assert torch.equal(found["norm"], stored["model.norm.weight"])


@pytest.mark.parametrize("writer", [tiny_llama, tiny_gemma3])
def test_shards_equal_one_file(tmp_path: Path, writer: Writer):
    one = load(writer(tmp_path / "one", Form(seed=3)))
    many = load(writer(tmp_path / "many", Form(seed=3, is_sharded=True)))
    assert not (tmp_path / "many" / "model.safetensors").exists()
    assert one.keys() == many.keys()
    assert all(torch.equal(one[k], many[k]) for k in one)


def test_gemma_norms_come_with_their_one(tmp_path: Path):
    found = load(tiny_gemma3(tmp_path))
    stored = load_file(tmp_path / "model.safetensors")
    assert torch.equal(found["norm"], stored["model.norm.weight"] + 1)
    name = "model.layers.0.self_attn.q_norm.weight"
    assert torch.equal(found["layers.0.q_norm"], stored[name] + 1)
    assert torch.equal(found["layers.0.q"], stored["model.layers.0.self_attn.q_proj.weight"])


def test_half_precision_becomes_what_models_take(tmp_path: Path):
    bf16 = load(tiny_llama(tmp_path / "b", Form(dtype=torch.bfloat16)))
    fp16 = load(tiny_llama(tmp_path / "h", Form(dtype=torch.float16)))
    assert (bf16["embed"].dtype, bf16["norm"].dtype) == (torch.bfloat16, torch.float32)
    assert (fp16["embed"].dtype, fp16["norm"].dtype) == (torch.float32, torch.float32)


def test_sizes_count_the_bytes_of_the_file(tmp_path: Path):
    folder = tiny_llama(tmp_path, Form(dtype=torch.bfloat16))
    weights = SafetensorsWeights.open(folder, load_model_config(folder))
    stored = load_file(folder / "model.safetensors").values()
    assert sum(weights.sizes.values()) == sum(2 * x.numel() for x in stored)


def test_copy_of_a_tied_head_is_ignored(tmp_path: Path):
    folder = tiny_qwen2(tmp_path)
    rewrite(folder, lambda x: x.update({"lm_head.weight": x[EMBED].clone()}))
    assert "lm_head" not in load(folder)


def test_language_part_of_a_vision_checkpoint(tmp_path: Path):
    plain = load(tiny_gemma3(tmp_path))

    def nest(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors["language_model." + name] = tensors.pop(name)
        tensors["vision_tower.patch.weight"] = torch.zeros(2, 2)

    rewrite(tmp_path, nest)
    nested = load(tmp_path)
    assert all(torch.equal(plain[k], nested[k]) for k in plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.pop(EMBED), rf"tensor {EMBED}: expected .* found none"),
        (lambda x: x.update(extra=torch.zeros(1)), "tensor extra: expected only"),
        (
            lambda x: x.update({EMBED: torch.zeros(64, 320)}),
            r"shape \[320, 64\], found \[64, 320\]",
        ),
        (lambda x: x.update({EMBED: x[EMBED].int()}), "expected one of F32, F16, BF16, found I32"),
    ],
)
def test_wrong_tensors_are_named(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], object], message: str
):
    folder = tiny_llama(tmp_path)
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_untied_model_without_head_is_refused(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    rewrite(folder, lambda x: x.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight: expected"):
        load(folder)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_cut_file_is_named(tmp_path: Path, cut: int):
    path = tiny_llama(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: expected a safetensors file"):
        load(tmp_path)


def test_folder_without_weights_is_refused(tmp_path: Path):
    (tiny_llama(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"found 0 \*\.safetensors"):
        load(tmp_path)


def _edit_index(folder: Path, name: str, file_name: object) -> None:
    index = orjson.loads((folder / INDEX).read_bytes())
    index["weight_map"][name] = file_name
    (folder / INDEX).write_bytes(orjson.dumps(index))


@pytest.mark.parametrize(
    ("file_name", "message"),
    [
        ("../model-00001-of-00003.safetensors", "expected plain file names"),
        ("/etc/passwd", "expected plain file names"),
        (None, "None: expected a safetensors file"),
        ("absent.safetensors", r"absent\.safetensors: expected a safetensors file"),
        ("model-00002-of-00003.safetensors", f"tensor {EMBED}: expected by"),
    ],
)
def test_index_that_leads_nowhere_is_refused(tmp_path: Path, file_name: object, message: str):
    folder = tiny_llama(tmp_path, Form(is_sharded=True))
    _edit_index(folder, EMBED, file_name)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": []}'])
def test_damaged_index_is_refused(tmp_path: Path, text: str):
    folder = tiny_llama(tmp_path, Form(is_sharded=True))
    (folder / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match="index.json"):
        load(folder)


@pytest.mark.parametrize("writer", [tiny_llama, tiny_qwen2, tiny_qwen3, tiny_gemma3])
def test_transformers_finds_every_key_of_a_tiny_checkpoint(tmp_path: Path, writer: Writer):
    transformers = pytest.importorskip("transformers")
    folder = writer(tmp_path, PLAIN)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values())
    model.save_pretrained(tmp_path / "again")
    found, again = load(folder), load(tmp_path / "again")
    assert load_model_config(tmp_path / "again") == load_model_config(folder)
    assert all(torch.equal(found[k], again[k]) for k in found)
