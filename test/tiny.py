"""Small random checkpoints in Hugging Face form, with a byte-level tokenizer.

Each writer fills a folder and returns it. The weights depend on the seed only; they are larger than
a trained model's so that logits differ visibly. `changes` replaces keys of `config.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import orjson
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.names import hf_names, is_norm, parameter_shapes

VOCAB_SIZE = 320
SPECIALS = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]  # ids 0 to 4
# Enough distinct prefixes for the 59 merges that fill the vocabulary.
WORDS = "the and of to in is that for with thread loom weaves cloth pattern def return self import"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMMON: dict[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 4,
}


@dataclass(frozen=True, slots=True)
class Form:
    """How a checkpoint is written, whatever the family."""

    seed: int = 0
    is_sharded: bool = False
    dtype: torch.dtype = torch.float32
    changes: dict[str, object] = field(default_factory=dict)


PLAIN = Form()


def tiny_llama(folder: Path, form: Form = PLAIN) -> Path:
    """An untied head, four query heads on two KV heads of size 16."""
    own = {"hidden_act": "silu", "rope_theta": 1e4, "tie_word_embeddings": False, "head_dim": 16}
    return _write(folder, "LlamaForCausalLM", "llama", own, form)


def tiny_qwen2(folder: Path, form: Form = PLAIN) -> Path:
    """Biases on q, k, v; tied head."""
    own = {"hidden_act": "silu", "rope_theta": 1e6, "tie_word_embeddings": True}
    return _write(folder, "Qwen2ForCausalLM", "qwen2", own, form)


def tiny_qwen3(folder: Path, form: Form = PLAIN) -> Path:
    """Norms on q and k; heads of 32, so the query width is twice the hidden size."""
    own = {"hidden_act": "silu", "rope_theta": 1e6, "tie_word_embeddings": True, "head_dim": 32}
    return _write(folder, "Qwen3ForCausalLM", "qwen3", own, form)


def tiny_gemma3(folder: Path, form: Form = PLAIN) -> Path:
    """Seven layers, window 8: w w g w w g w, so windows lie below, between and above globals."""
    own = {
        "num_hidden_layers": 7,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 8,
        "layer_types": ["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(7)],
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "tie_word_embeddings": True,
    }
    return _write(folder, "Gemma3ForCausalLM", "gemma3_text", own, form)


def _write(
    folder: Path, architecture: str, model_type: str, own: dict[str, object], form: Form
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": [architecture], "model_type": model_type, **COMMON, **own}
    config["dtype"] = str(form.dtype).removeprefix("torch.")
    _write_json(folder / "config.json", config | form.changes)
    _write_json(
        folder / "generation_config.json",
        {
            "eos_token_id": [4, 2],
            "bos_token_id": 1,
            "do_sample": True,
            "temperature": 0.7,
            "top_k": 50,
        },
    )
    _write_tokenizer(folder)
    tensors = _random_tensors(folder, form)
    if form.is_sharded:
        _write_shards(folder, tensors)
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _random_tensors(folder: Path, form: Form) -> dict[str, Tensor]:
    config = load_model_config(folder)
    names = hf_names(config, ())
    generator = torch.Generator().manual_seed(form.seed)
    tensors: dict[str, Tensor] = {}
    for parameter, shape in parameter_shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        if is_norm(parameter):
            values = 0.2 * noise if config.norm_plus_one else 1.0 + 0.2 * noise
        else:
            values = noise * (0.3 if len(shape) == 1 else 1.5 * shape[-1] ** -0.5)
        tensors[names[parameter]] = values.to(form.dtype)
    return tensors


def _write_shards(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Three shards with the tensors dealt round, so that parts of a layer lie in several files."""
    weight_map: dict[str, str] = {}
    for shard in range(3):
        file_name = f"model-{shard + 1:05d}-of-00003.safetensors"
        part = dict(list(tensors.items())[shard::3])
        save_file(part, folder / file_name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file_name)
    total = sum(x.numel() * x.element_size() for x in tensors.values())
    _write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def _write_tokenizer(folder: Path) -> None:
    """All bytes, then merges that build WORDS from the left, until the vocabulary is full."""
    vocab = SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in WORDS.split():
        for end in range(1, len(word) + 1):
            merge = ("\u0120" + word[: end - 1], word[end - 1])  # U+0120 stands for a space
            if "".join(merge) not in vocab and len(vocab) < VOCAB_SIZE:
                merges.append(merge)
                vocab.append("".join(merge))
    assert len(vocab) == VOCAB_SIZE
    ids = {piece: i for i, piece in enumerate(vocab)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "<|im_end|>",
            "pad_token": "<pad>",
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
