"""Loads DeepSeek-V4.1: packed caches, compressed entries, a decoder that is trimmed."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ..cache.row_sizes import tail_rows
from ..errors import ConfigError
from ..host import read_host_facts
from ..latent_config import LatentConfig
from ..layers.latent_pools import LatentPools
from ..layers.row_formats import RowFormats
from ..loader.meta import MetaWeights
from ..loader.packed import PackedWeights
from ..log import event
from ..models.deepseek_v41_build import Builder
from ..models.held import held_bytes
from ..models.moved import moved
from .drafter import Drafter
from .engine import Engine, LoadRequest
from .mapping import Trim

log = logging.getLogger(__name__)


def load_latent(request: LoadRequest) -> Engine:
    """Raises: CheckpointError for the files, ConfigError for a way of loading that they lack."""
    config, model = request.config, request.model
    device = torch.device(config.parallel.device)
    latent, cache = model.latent, config.cache
    assert latent is not None
    _check_format(request)
    weights = PackedWeights.open(request.path, model, request.progress)
    # The exact cache is for checking numerics: nothing is rounded then, activations neither.
    builder = Builder(model, latent, weights, is_rounding=cache.kv_dtype != "float32")
    draft_tokens = config.sched.draft_tokens
    _compare_memory(replace(builder, weights=MetaWeights.of(model)), request.path, draft_tokens > 0)
    decoder = builder.model(request.path)
    formats = RowFormats.of(cache.kv_dtype, model.head_dim, latent.indexer.head_dim)
    pools = _pools(request, latent, formats)
    head = builder.draft(decoder) if draft_tokens else None
    decoder = moved(decoder, device)
    drafter = None if head is None else Drafter(decoder, head, pools, draft_tokens)
    trim = Trim(latent.cut, model.window, cache.trim_clips, cache.trim_rule == "chunk")
    return Engine(
        drafter.forward if drafter else partial(decoder.forward, pools=pools),
        decoder.head,
        pools,
        held_bytes(decoder, head),
        trim if cache.trim_rule in ("prompt", "chunk") else None,
        drafter,
    )


def _check_format(request: LoadRequest) -> None:
    load_format = request.config.model.load_format
    if load_format not in ("auto", "safetensors"):
        raise ConfigError(
            f"--load-format {load_format}: {request.model.architecture} is loaded from "
            "safetensors only"
        )


def _pools(request: LoadRequest, latent: LatentConfig, formats: RowFormats) -> LatentPools:
    capacity, config = request.capacity, request.config
    draft_tokens = config.sched.draft_tokens
    return LatentPools.allocate(
        request.model,
        formats,
        capacity.num_pages,
        config.cache.page_size,
        capacity.num_slots,
        request.ring_rows,
        tail_rows(draft_tokens),
        latent.draft.num_blocks if draft_tokens else 0,
        torch.device(config.parallel.device),
    )


def _compare_memory(builder: Builder, path: Path, has_draft: bool) -> None:
    """Warns before a long load that will not end well. Only a warning: what is available now is an
    estimate, and caches of files count as used in some containers."""
    decoder = builder.model(path)
    needed = held_bytes(decoder, builder.draft(decoder) if has_draft else None)
    available = read_host_facts().available_bytes
    if needed > available:
        sizes: dict[str, object] = {"weight_bytes": needed, "available_bytes": available}
        log.warning(event("memory_may_not_suffice", sizes))
