"""Loads models with ordinary attention: keys and values per head (Llama, Qwen, Gemma 3)."""

from __future__ import annotations

from functools import partial

import torch

from ..layers.linear import Matrix, WeightPolicy
from ..layers.pools import KVPools, PagePool, WindowPool
from ..layers.rope import rope_tables
from ..loader.weights import iter_weights
from ..models.decoder import Parameters
from ..models.held import held_bytes
from ..models.registry import build_model
from .engine import Engine, LoadRequest

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_dense(request: LoadRequest) -> Engine:
    """Raises: CheckpointError for the files, ConfigError for an architecture without a model."""
    config, model = request.config, request.model
    device = torch.device(config.parallel.device)
    policy = WeightPolicy(DTYPES[config.model.dtype], config.model.quantization == "q8_0", device)
    values: dict[str, Matrix] = {}
    load_format = config.model.load_format
    for name, weight in iter_weights(request.path, model, load_format, request.progress, device):
        values[name] = policy.keep(weight) if weight.ndim == 2 else weight.float().to(device)
    wide = torch.promote_types(policy.activation_dtype, torch.float32)
    tables = {
        rope: table.to(device)
        for rope, table in rope_tables(model, config.model.context_len, wide).items()
    }
    decoder = build_model(Parameters(model, values, tables, policy.activation_dtype))
    dtype, capacity = DTYPES[config.cache.kv_dtype], request.capacity
    pools = KVPools(
        PagePool.allocate(model, capacity.num_pages, config.cache.page_size, dtype, device),
        WindowPool.allocate(model, capacity.num_slots, request.ring_rows, dtype, device),
    )
    return Engine(
        partial(decoder.forward, pools=pools), decoder.head, pools, held_bytes(*values.values())
    )
