"""Parameter names: order, shapes, and both spellings, against real names and the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf

from test.tiny import tiny_gemma3, tiny_llama, tiny_qwen2
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.names import (
    gguf_names,
    hf_names,
    is_hf_ignored,
    is_norm,
    parameter_shapes,
    split_layer,
)


def test_parts_of_a_fused_matrix_follow_one_another(tmp_path: Path):
    parameters = list(parameter_shapes(load_model_config(tiny_qwen2(tmp_path))))
    assert parameters[0] == "embed"
    attention = ["attn_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "o"]
    mlp = ["mlp_norm", "gate", "up", "down"]
    assert parameters[1:13] == [f"layers.0.{x}" for x in attention + mlp]
    assert parameters[-1] == "norm"  # a tied head is no parameter


def test_shapes_are_out_by_in(tmp_path: Path):
    shapes = parameter_shapes(load_model_config(tiny_gemma3(tmp_path)))
    assert shapes["layers.6.q"] == (128, 64)
    assert shapes["layers.6.k"] == (32, 64)
    assert shapes["layers.6.o"] == (64, 128)
    assert shapes["layers.6.down"] == (64, 96)
    assert shapes["layers.6.q_norm"] == (32,)
    assert shapes["layers.6.post_mlp_norm"] == (64,)


def test_second_norm_of_a_layer_depends_on_the_family(tmp_path: Path):
    llama = hf_names(load_model_config(tiny_llama(tmp_path / "l")), ())
    gemma = hf_names(load_model_config(tiny_gemma3(tmp_path / "g")), ())
    after_attention = "model.layers.1.post_attention_layernorm.weight"
    assert llama["layers.1.mlp_norm"] == after_attention
    assert gemma["layers.1.post_attn_norm"] == after_attention
    assert gemma["layers.1.mlp_norm"] == "model.layers.1.pre_feedforward_layernorm.weight"
    assert llama["lm_head"] == "lm_head.weight"


def test_prefix_is_where_the_embedding_lies(tmp_path: Path):
    config = load_model_config(tiny_llama(tmp_path))
    found = ["language_model.model.embed_tokens.weight", "language_model.lm_head.weight"]
    names = hf_names(config, found)
    assert names["norm"] == "language_model.model.norm.weight"
    assert names["lm_head"] == "language_model.lm_head.weight"
    nested = hf_names(config, ["model.language_model.embed_tokens.weight"])
    assert nested["layers.2.up"] == "model.language_model.layers.2.mlp.up_proj.weight"


def test_tensors_of_no_use_are_ignored():
    assert is_hf_ignored("vision_tower.blocks.0.weight", is_tied=False)
    assert is_hf_ignored("model.multi_modal_projector.weight", is_tied=False)
    assert is_hf_ignored("model.layers.0.self_attn.rotary_emb.inv_freq", is_tied=False)
    assert is_hf_ignored("lm_head.weight", is_tied=True)
    assert not is_hf_ignored("lm_head.weight", is_tied=False)
    assert not is_hf_ignored("model.layers.0.self_attn.q_proj.weight", is_tied=True)


def test_gguf_names_equal_the_gguf_package(tmp_path: Path):
    for writer, arch in (
        (tiny_llama, gguf.MODEL_ARCH.LLAMA),
        (tiny_qwen2, gguf.MODEL_ARCH.QWEN2),
        (tiny_gemma3, gguf.MODEL_ARCH.GEMMA3),
    ):
        config = load_model_config(writer(tmp_path / arch.name))
        table = gguf.get_tensor_name_map(arch, len(config.layers))
        hf = hf_names(config, ())
        for parameter, name in gguf_names(config).items():
            assert table.get_name(hf[parameter], try_suffixes=(".weight", ".bias")) == name


def test_layer_and_kind_of_a_parameter():
    assert split_layer("layers.12.q_bias") == (12, "q_bias")
    assert split_layer("norm") == (-1, "norm")
    assert is_norm("layers.0.q_norm") and is_norm("norm")
    assert not is_norm("layers.0.q")
