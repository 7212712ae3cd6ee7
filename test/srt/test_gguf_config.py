"""GGUF metadata -> ModelConfig: equal to what the same model's config.json gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from test.tiny import Form, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from test.tiny_gguf import write_gguf
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError, ConfigError
from treadle.srt.gguf import GgufFile
from treadle.srt.gguf_config import model_config_from_gguf
from treadle.srt.model_config import LayerKind, ModelConfig, Rope

Writer = Callable[[Path, Form], Path]


def read(file: GgufFile, **keys: object) -> ModelConfig:
    """`keys` replace metadata below the architecture; dots are written as double underscores."""
    architecture = file.value("general.architecture", str)
    changes = {f"{architecture}.{k.replace('__', '.')}": v for k, v in keys.items()}
    return model_config_from_gguf(replace(file, metadata={**file.metadata, **changes}))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    folder = tiny_llama(tmp_path_factory.mktemp("llama"))
    return GgufFile.open(write_gguf(folder, folder / "m.gguf"))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    folder = tiny_gemma3(tmp_path_factory.mktemp("gemma"))
    return GgufFile.open(write_gguf(folder, folder / "m.gguf"))


@pytest.mark.parametrize("writer", [tiny_llama, tiny_qwen2, tiny_qwen3])
def test_agrees_with_config_json(tmp_path: Path, writer: Writer):
    folder = writer(tmp_path, Form())
    expected = load_model_config(folder)
    found = load_model_config(write_gguf(folder, tmp_path / "m.gguf"))
    assert found.rms_norm_eps == pytest.approx(expected.rms_norm_eps)  # stored in fp32
    assert found.eos_ids == (4,)  # the format has no generation_config
    same = {"rms_norm_eps": expected.rms_norm_eps, "eos_ids": expected.eos_ids}
    assert replace(found, **same) == expected  # type: ignore[arg-type]


def test_gemma3_gaps_are_filled(gemma: GgufFile):
    config = read(gemma)
    assert config.global_layers == (5,)  # a period of six, unless the file says otherwise
    assert config.layers[5].rope == Rope(theta=1e6)
    assert config.layers[0].rope == Rope(theta=1e4)
    assert (config.window, config.embed_scale, config.replay_slope) == (8, 8.0, 32)
    assert config.attention_scale == 32**-0.5
    assert config.sandwich_norm and config.qk_norm and config.tie_embeddings
    assert not config.norm_plus_one  # the converter has added the one


def test_gemma3_scale_of_the_27b_is_by_hidden_size(gemma: GgufFile):
    assert read(gemma, block_count=62).attention_scale == (64 // 4) ** -0.5
    assert read(gemma, attention__scale=0.25).attention_scale == 0.25


def test_gemma3_window_keys_are_read(gemma: GgufFile):
    assert read(gemma, attention__sliding_window_pattern=3).global_layers == (2, 5)
    flags = [True, False, True, True, True, True, True]
    config = read(gemma, attention__sliding_window_pattern=flags, rope__freq_base_swa=2e4)
    assert config.global_layers == (1,)
    assert config.layers[0].kind is LayerKind.WINDOW
    assert config.layers[0].rope == Rope(theta=2e4)


def test_linear_rope_scales_global_layers_only(gemma: GgufFile):
    keys = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    layers = read(gemma, **keys).layers
    assert layers[5].rope == Rope(theta=1e6, kind="linear", factor=8.0)
    assert layers[0].rope == Rope(theta=1e4)


def test_end_ids_include_end_pieces(llama: GgufFile):
    metadata = {
        **llama.metadata,
        "tokenizer.ggml.eot_token_id": 9,
        "tokenizer.ggml.tokens": ["a", "<|im_end|>", "b", "<end_of_turn>"],
    }
    assert model_config_from_gguf(replace(llama, metadata=metadata)).eos_ids == (4, 9, 1, 3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_count": 8}, r"llama\.expert_count = 8 is not supported; supported: 0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"rope__scaling__type": "yarn"}, "'yarn' is not supported; supported: none, linear"),
        ({"attention__sliding_window": 64}, r"attention\.sliding_window = 64"),
        ({"attention__value_length": 8}, r"attention\.value_length = 8"),
        ({"rope__dimension_count": 8}, r"rope\.dimension_count = 8"),
    ],
)
def test_unsupported_features_are_refused_by_name(
    llama: GgufFile, keys: dict[str, object], message: str
):
    with pytest.raises(ConfigError, match=message):
        read(llama, **keys)


def test_other_architectures_and_kinds_are_refused(llama: GgufFile):
    for key, value in (("general.architecture", "mamba"), ("general.type", "adapter")):
        odd = replace(llama, metadata={**llama.metadata, key: value})
        with pytest.raises(ConfigError, match=f"{key} = '{value}'"):
            model_config_from_gguf(odd)


def test_damaged_values_are_named(llama: GgufFile):
    with pytest.raises(CheckpointError, match=r"llama\.block_count: expected 1 to 4096"):
        read(llama, block_count=10**9)
    with pytest.raises(CheckpointError, match=r"llama\.embedding_length: expected int"):
        read(llama, embedding_length="64")
    with pytest.raises(CheckpointError, match=r"token_embd\.weight"):
        model_config_from_gguf(replace(llama, tensors={}))


def _with_divisors(path: Path, divisors: list[float]) -> GgufFile:
    """A llama file of head size 128 with the divisors that a converter writes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(131_072)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_tensor("rope_freqs.weight", np.array(divisors, dtype=np.float32))
    writer.add_tensor("token_embd.weight", np.zeros((8, 256), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile.open(path)


def _llama3_divisors(factor: float) -> list[float]:
    """As transformers computes them: the frequencies before over those after."""
    inverse = 5e5 ** -(np.arange(0, 128, 2) / 128)
    wavelength = 2 * np.pi / inverse
    smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
    mixed = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > 8192, inverse / factor, inverse)
    is_medium = (wavelength >= 8192 / 4) & (wavelength <= 8192)
    result: list[float] = (inverse / np.where(is_medium, mixed, scaled)).tolist()
    return result


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_is_recovered_from_divisors(tmp_path: Path, factor: float):
    file = _with_divisors(tmp_path / "m.gguf", _llama3_divisors(factor))
    assert read(file).layers[0].rope == Rope(
        theta=5e5, kind="llama3", factor=factor, original_context_len=8192
    )


def test_other_divisors_are_refused(tmp_path: Path):
    file = _with_divisors(tmp_path / "m.gguf", [1.0, *[2.0] * 63])
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight is not the llama3 scaling"):
        read(file)


def test_quantised_files_are_told_apart(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    kinds = gguf.GGMLQuantizationType
    for kind, expected in ((kinds.F32, False), (kinds.F16, False), (kinds.Q8_0, True)):
        path = write_gguf(folder, tmp_path / f"{kind.name}.gguf", kind)
        assert load_model_config(path).is_quantized is expected
