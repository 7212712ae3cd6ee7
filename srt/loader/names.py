"""Parameter names and shapes of a decoder, and what the two checkpoint forms call them.

    embed [V, C]
    layers.{i}. + attn_norm [C] | q [H*D, C] | k, v [K*D, C] | o [C, H*D]
                | mlp_norm [C] | gate, up [F, C] | down [C, F]
      by family + q_bias [H*D] | k_bias, v_bias [K*D] | o_bias [C] | q_norm, k_norm [D]
                | post_attn_norm, post_mlp_norm [C]
    norm [C]
    lm_head [V, C], absent when tied

Matrices are [out, in]. Heads are rotate-half. The order of `parameter_shapes` is the order of
loading: parts of what a model fuses (q, k, v; gate, up) follow one another.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model_config import ModelConfig

Shape = tuple[int, ...]

HF_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
HF_SANDWICH = {  # the same words mean another place once there are four norms
    "post_attn_norm": "post_attention_layernorm.weight",
    "mlp_norm": "pre_feedforward_layernorm.weight",
    "post_mlp_norm": "post_feedforward_layernorm.weight",
}
HF_PREFIXES = ("model.", "model.language_model.", "language_model.model.")
HF_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
HF_VISION = ("vision_tower.", "multi_modal_projector.")

GGUF_TOP = {"embed": "token_embd.weight", "norm": "output_norm.weight", "lm_head": "output.weight"}
GGUF_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "o_bias": "attn_output.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "post_attn_norm": "post_attention_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "post_mlp_norm": "post_ffw_norm.weight",
}


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every parameter of the model, in the order of loading."""
    hidden = (config.hidden_size,)
    vocab = (config.vocab_size, config.hidden_size)
    shapes: dict[str, Shape] = {"embed": vocab}
    layer = _layer_shapes(config)
    for index in range(len(config.layers)):
        shapes |= {f"layers.{index}.{part}": shape for part, shape in layer.items()}
    shapes["norm"] = hidden
    if not config.tie_embeddings:
        shapes["lm_head"] = vocab
    return shapes


def is_norm(parameter: str) -> bool:
    return parameter.endswith("norm")


def split_layer(parameter: str) -> tuple[int, str]:
    """`layers.3.q` -> (3, "q"); a parameter outside the layers -> (-1, its name)."""
    if not parameter.startswith("layers."):
        return -1, parameter
    _, index, part = parameter.split(".")
    return int(index), part


def hf_names(config: ModelConfig, found: Iterable[str]) -> dict[str, str]:
    """Parameter -> tensor name in a Hugging Face checkpoint that holds the tensors `found`.

    The prefix depends on which class saved it, so it is taken from where the embedding lies.
    """
    present = set(found)
    layer = HF_LAYER | (HF_SANDWICH if config.sandwich_norm else {})
    prefix = next((p for p in HF_PREFIXES if p + "embed_tokens.weight" in present), HF_PREFIXES[0])
    head = next((name for name in HF_HEADS if name in present), HF_HEADS[0])
    top = {
        "embed": prefix + "embed_tokens.weight",
        "norm": prefix + "norm.weight",
        "lm_head": head,
    }
    return {
        parameter: top[part] if index < 0 else f"{prefix}layers.{index}.{layer[part]}"
        for parameter in parameter_shapes(config)
        for index, part in (split_layer(parameter),)
    }


def is_hf_ignored(name: str, *, is_tied: bool) -> bool:
    """Tensors of no use to a text model: vision parts, rope buffers, the copy of a tied head."""
    if name.removeprefix("model.").startswith(HF_VISION):
        return True
    return name.endswith("rotary_emb.inv_freq") or (is_tied and name in HF_HEADS)


def gguf_names(config: ModelConfig) -> dict[str, str]:
    """Parameter -> tensor name in a GGUF file."""
    return {
        parameter: GGUF_TOP[part] if index < 0 else f"blk.{index}.{GGUF_LAYER[part]}"
        for parameter in parameter_shapes(config)
        for index, part in (split_layer(parameter),)
    }


def _layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    hidden, size = config.hidden_size, config.head_dim
    q_rows, kv_rows = config.num_heads * size, config.num_kv_heads * size
    shapes: dict[str, Shape] = {
        "attn_norm": (hidden,),
        "q": (q_rows, hidden),
        "k": (kv_rows, hidden),
        "v": (kv_rows, hidden),
    }
    if config.qkv_bias:
        shapes |= {"q_bias": (q_rows,), "k_bias": (kv_rows,), "v_bias": (kv_rows,)}
    if config.qk_norm:
        shapes |= {"q_norm": (size,), "k_norm": (size,)}
    shapes["o"] = (hidden, q_rows)
    if config.o_bias:
        shapes["o_bias"] = (hidden,)
    if config.sandwich_norm:
        shapes["post_attn_norm"] = (hidden,)
    mlp = (config.intermediate_size, hidden)
    shapes |= {"mlp_norm": (hidden,), "gate": mlp, "up": mlp, "down": mlp[::-1]}
    if config.sandwich_norm:
        shapes["post_mlp_norm"] = (hidden,)
    return shapes
