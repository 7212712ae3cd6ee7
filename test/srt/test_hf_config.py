"""config.json -> ModelConfig: families, both generations of keys, and refusals by name."""

from __future__ import annotations

import pytest

from treadle.srt.errors import CheckpointError, ConfigError
from treadle.srt.hf_config import model_config_from_hf
from treadle.srt.json_object import JsonObject
from treadle.srt.model_config import LayerKind, ModelConfig, Rope

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 5e5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA = LLAMA | {
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 7,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 25,
    "sliding_window": 512,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
GEMMA.pop("hidden_act")
# As published for a vision model: the text part lists only what differs from its class.
CONDITIONAL = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106],
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152},
}


def read(
    config: dict[str, object],
    generation: dict[str, object] | None = None,
    override: dict[str, object] | None = None,
) -> ModelConfig:
    return model_config_from_hf(
        JsonObject("c/config.json", config),
        JsonObject("c/generation_config.json", generation or {}),
        override or {},
    )


def test_llama_facts():
    config = read(LLAMA)
    assert (config.architecture, config.model_type) == ("LlamaForCausalLM", "llama")
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (8, 2, 8)
    assert config.attention_scale == 8**-0.5
    assert config.embed_scale == 1.0
    assert config.global_layers == (0, 1, 2, 3)
    assert {x.rope for x in config.layers} == {Rope(theta=5e5)}
    assert not (config.qkv_bias or config.o_bias or config.qk_norm or config.norm_plus_one)
    assert not (config.tie_embeddings or config.is_quantized or config.sandwich_norm)


def test_families_differ_in_bias_and_norms():
    qwen2 = read(LLAMA | {"architectures": ["Qwen2ForCausalLM"]})
    qwen3 = read(LLAMA | {"architectures": ["Qwen3ForCausalLM"]})
    biased = read(LLAMA | {"attention_bias": True})
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == (False, True, 128)
    assert (biased.qkv_bias, biased.o_bias) == (True, True)


def test_gemma3_facts():
    config = read(GEMMA)
    assert config.global_layers == (5,)
    assert (config.window, config.replay_slope) == (512, 32)
    assert config.attention_scale == pytest.approx(0.2)
    assert config.embed_scale == 8.0
    assert config.activation == "gelu_tanh"
    assert config.norm_plus_one and config.sandwich_norm and config.qk_norm
    assert config.layers[5].rope == Rope(theta=1e6)
    assert config.layers[0].rope == Rope(theta=1e4)


@pytest.mark.parametrize("key", ["sliding_window_pattern", "_sliding_window_pattern"])
def test_gemma3_pattern_is_a_period(key: str):
    assert read(GEMMA | {key: 3}).global_layers == (2, 5)


def test_layer_types_win_over_the_pattern():
    kinds = ["full_attention", *["sliding_attention"] * 6]
    config = read(GEMMA | {"layer_types": kinds, "sliding_window_pattern": 3})
    assert config.global_layers == (0,)
    assert config.layers[0].kind is LayerKind.GLOBAL


def test_conditional_gemma_reads_its_text_part():
    config = read(CONDITIONAL)
    assert config.architecture == "Gemma3ForCausalLM"
    assert (config.hidden_size, config.num_heads, config.num_kv_heads) == (2560, 8, 4)
    assert (config.vocab_size, config.head_dim, config.window) == (262_208, 256, 1024)
    assert config.eos_ids == (1, 106)
    assert config.tie_embeddings
    assert config.layers[5].rope == Rope(theta=1e6, kind="linear", factor=8.0)
    assert config.layers[0].rope == Rope(theta=1e4)  # windows are not scaled


def test_rope_parameters_of_transformers_5():
    flat = {k: v for k, v in LLAMA.items() if k != "rope_theta"}
    flat["rope_parameters"] = {"rope_type": "linear", "rope_theta": 3e5, "factor": 2.0}
    assert read(flat).layers[0].rope == Rope(theta=3e5, kind="linear", factor=2.0)
    nested = GEMMA | {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 2e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        }
    }
    layers = read(nested).layers
    assert layers[5].rope == Rope(theta=2e6, kind="linear", factor=8.0)
    assert layers[0].rope == Rope(theta=2e4)


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_llama3_rope(key: str):
    scaling = {
        key: "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert read(LLAMA | {"rope_scaling": scaling}).layers[0].rope == Rope(
        theta=5e5, kind="llama3", factor=32.0, original_context_len=8192
    )


def test_mistral_is_llama_once_its_window_is_off():
    mistral = LLAMA | {"architectures": ["MistralForCausalLM"]}
    expected = read(LLAMA)
    assert read(mistral | {"sliding_window": None}) == expected
    assert read(mistral | {"sliding_window": 4096}) == expected  # never narrower than the context
    with pytest.raises(ConfigError, match="sliding_window = 1024 is not supported"):
        read(mistral | {"sliding_window": 1024})


def test_qwen_window_counts_only_when_used():
    qwen = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 1024}
    assert read(qwen | {"use_sliding_window": False}).window == 0
    with pytest.raises(ConfigError, match="sliding_window = 1024"):
        read(qwen | {"use_sliding_window": True})


def test_generation_config_wins_for_end_ids():
    assert read(LLAMA, {"eos_token_id": [5, 7, 5]}).eos_ids == (5, 7)
    assert read(LLAMA, {}).eos_ids == (2,)
    assert read(LLAMA | {"eos_token_id": None}).eos_ids == ()


def test_override_replaces_keys_of_the_text_part():
    assert read(LLAMA, override={"rope_theta": 7.0}).layers[0].rope.theta == 7.0
    assert read(CONDITIONAL, override={"sliding_window": 64}).window == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures .*GPT2LMHeadModel.*LlamaForCausal"),
        ({"architectures": None}, "architectures = None"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'.*default, linear, llama3"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor = 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"num_local_experts": 8}, "num_local_experts = 8"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config = .*awq"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'.*silu"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types .*full_attention"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types"),
    ],
)
def test_unsupported_features_are_refused_by_name(changes: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        read(LLAMA | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias = True"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar = 0"),
        ({"hidden_activation": "gelu"}, "hidden_activation = 'gelu'"),
    ],
)
def test_unsupported_features_of_gemma3(changes: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        read(GEMMA | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "config.json: hidden_size: expected int, found nothing"),
        ({"hidden_size": "64"}, "expected int, found '64'"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected 1 to"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected 1 to 4096"),
        ({"rms_norm_eps": True}, "rms_norm_eps: expected float, found True"),
        ({"rope_scaling": "linear"}, "rope_scaling: expected an object"),
        ({"layer_types": ["full_attention"]}, "expected 4 entries, found 1"),
        ({"eos_token_id": "</s>"}, "eos_token_id: expected ids"),
        ({"rope_scaling": {"type": "linear"}}, "factor: expected float, found nothing"),
    ],
)
def test_damaged_values_are_named(changes: dict[str, object], message: str):
    with pytest.raises(CheckpointError, match=message):
        read(LLAMA | changes)
