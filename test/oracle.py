"""An independent decoder in plain torch: whole prompts, dense masks, no cache. For parity tests."""

from __future__ import annotations

import torch
from torch import Tensor

from treadle.srt.model_config import LayerKind, ModelConfig, Rope


def random_parameters(config: ModelConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Canonical names -> tensors at fan-in scale; norms near one."""
    gen = torch.Generator().manual_seed(seed)

    def matrix(rows: int, cols: int) -> Tensor:
        return torch.randn(rows, cols, generator=gen, dtype=dtype) / cols**0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.1 * torch.randn(size, generator=gen, dtype=dtype)

    c, q = config.hidden_size, config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    values = {"embed": torch.randn(config.vocab_size, c, generator=gen, dtype=dtype) / c**0.5}
    values["norm"] = norm(c)
    for i in range(len(config.layers)):
        layer = {
            "attn_norm": norm(c), "mlp_norm": norm(c), "q": matrix(q, c), "k": matrix(kv, c),
            "v": matrix(kv, c), "o": matrix(c, q), "gate": matrix(config.intermediate_size, c),
            "up": matrix(config.intermediate_size, c), "down": matrix(c, config.intermediate_size),
        }  # fmt: skip
        if config.qk_norm:
            layer |= {"q_norm": norm(config.head_dim), "k_norm": norm(config.head_dim)}
        if config.sandwich_norm:
            layer |= {"post_attn_norm": norm(c), "post_mlp_norm": norm(c)}
        values |= {f"layers.{i}.{name}": value for name, value in layer.items()}
    return values


def logits(config: ModelConfig, values: dict[str, Tensor], token_ids: list[int]) -> Tensor:
    """Logits [n, V] of a whole prompt."""
    h = values["embed"][torch.tensor(token_ids)] * config.embed_scale
    for i, layer in enumerate(config.layers):
        p = {k.split(".")[2]: v for k, v in values.items() if k.startswith(f"layers.{i}.")}
        window = config.window if layer.kind is LayerKind.WINDOW else len(token_ids)
        a = _attention(config, p, _norm(h, p["attn_norm"], config), layer.rope, window)
        h = h + (_norm(a, p["post_attn_norm"], config) if config.sandwich_norm else a)
        x = _norm(h, p["mlp_norm"], config)
        gate = x @ p["gate"].T
        if config.activation == "silu":
            gate = torch.nn.functional.silu(gate)
        else:
            gate = torch.nn.functional.gelu(gate, approximate="tanh")
        m = (gate * (x @ p["up"].T)) @ p["down"].T
        h = h + (_norm(m, p["post_mlp_norm"], config) if config.sandwich_norm else m)
    head = values["embed"] if config.tie_embeddings else values["lm_head"]
    return _norm(h, values["norm"], config) @ head.T


def _norm(x: Tensor, weight: Tensor, config: ModelConfig) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight


def _attention(
    config: ModelConfig, p: dict[str, Tensor], x: Tensor, rope: Rope, window: int
) -> Tensor:
    n, d = x.shape[0], config.head_dim
    q = (x @ p["q"].T).view(n, config.num_heads, d)
    k = (x @ p["k"].T).view(n, config.num_kv_heads, d)
    v = (x @ p["v"].T).view(n, config.num_kv_heads, d)
    if config.qk_norm:
        q, k = _norm(q, p["q_norm"], config), _norm(k, p["k_norm"], config)
    q, k = _rotate(q, rope), _rotate(k, rope)
    group = config.num_heads // config.num_kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * config.attention_scale
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    scores = scores.masked_fill((distance < 0) | (distance >= window), -torch.inf)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return out.reshape(n, -1) @ p["o"].T


def _rotate(x: Tensor, rope: Rope) -> Tensor:
    n, d = x.shape[0], x.shape[-1]
    freq = rope.theta ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * freq
    cos, sin = angle.cos()[:, None].to(x.dtype), angle.sin()[:, None].to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
