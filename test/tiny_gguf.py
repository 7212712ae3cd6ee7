"""A folder of `tiny.py` as a GGUF file, converted with the `gguf` package: its names, its encoders.

Does to the tensors what llama.cpp's converter does: q and k of llama interleaved, one added to
Gemma's norms. Nothing here comes from our loader, so agreement means something.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import orjson
from safetensors.numpy import load_file

Array = npt.NDArray[np.float32]
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}


def write_gguf(
    folder: Path,
    target: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra: dict[str, int | float | str] | None = None,
) -> Path:
    """`folder` holds one safetensors file in fp32. Matrices become `kind`, vectors stay F32."""
    config = orjson.loads((folder / "config.json").read_bytes())
    arch = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[arch])
    _write_metadata(writer, config)
    for key, value in (extra or {}).items():
        writer.add_key_value(key, value, _value_type(value))
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in load_file(folder / "model.safetensors").items():
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, name
        converted = _converted(name, values, config, arch)
        if values.ndim == 1:
            writer.add_tensor(ours, converted)
        else:
            writer.add_tensor(ours, gguf.quants.quantize(converted, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _converted(name: str, values: Array, config: dict[str, int], arch: gguf.MODEL_ARCH) -> Array:
    if arch is gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
        return values + np.float32(1.0)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    part = name.split(".")[-2]
    if arch is gguf.MODEL_ARCH.LLAMA and part in heads:
        split = values.reshape(heads[part], 2, -1, *values.shape[1:])
        return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(values.shape)
    return values


def _write_metadata(writer: gguf.GGUFWriter, config: dict[str, int]) -> None:
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])


def _value_type(value: int | float | str) -> gguf.GGUFValueType:
    return gguf.GGUFValueType.get_type(value)
