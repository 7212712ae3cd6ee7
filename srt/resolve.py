"""Settles every "auto" and -1 of a ServerConfig and refuses what cannot run. Pure.

Every error names the flag, the value and the limit. What a value means is where it is used; here
are only defaults that depend on the model or the machine, and ranges. Limits that need the sizes of
layers (memory against windows and pages) are checked by `cache/layout.py`, replay against chunks
by `cache/replay.py`; both are asked here, so that a launch fails before a weight is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import orjson

from .cache.grid import default_grid
from .cache.layout import KVLayout, align_up, plan_capacity
from .cache.replay import ReplayRule
from .config import (
    MAX_REPLICAS,
    ApiSection,
    CacheSection,
    ModelSection,
    NetSection,
    ParallelSection,
    SchedSection,
    ServerConfig,
)
from .device import (
    LIMITS,
    Limits,
    choose_attention,
    choose_device,
    choose_dtypes,
    choose_graphs,
    cpu_budget,
    cuda_budget,
)
from .errors import ConfigError
from .host import HostFacts
from .model_config import ModelConfig

LARGEST_PORT = 65535
METRIC_NAME = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
UNLIMITED = float("inf")

Range = tuple[str, float, float, float]  # flag, value, lowest, highest


def resolve(config: ServerConfig, model: ModelConfig, host: HostFacts) -> ServerConfig:
    """`model` already has the overrides of `config.model.override_args`. Raises: ConfigError."""
    _check(_ranges(config, model))
    _check_texts(config.net, config.api)
    host = host.share(config.parallel.dp_size)
    device = choose_device(config, model, host)
    parallel = _parallel(config.parallel, model, host, device)
    section = _model(config.model, config.cache, model, device)
    cache = _cache(config.cache, model, section.dtype, device, host)
    sched = _sched(config.sched, cache, model, LIMITS[device], host.seed)
    parallel = replace(
        parallel, graph_batch=choose_graphs(parallel, model, device, sched.max_running)
    )
    cache = replace(cache, warm_windows=_warm(cache, sched, model))
    layout = KVLayout.from_config(model, cache, sched.draft_tokens, 1)
    plan_capacity(
        layout,
        cache.memory_bytes,
        sched.max_running,
        cache.max_total_tokens,
        section.context_len,
        sched.chunk_tokens,
    )
    return ServerConfig(section, cache, sched, parallel, _net(config.net), config.api)


def _parallel(
    section: ParallelSection, model: ModelConfig, host: HostFacts, device: str
) -> ParallelSection:
    if section.tp_size != 1:
        raise ConfigError(
            f"--tp-size {section.tp_size}: this version has one worker; tensor parallelism "
            "comes in a later one"
        )
    threads = section.num_threads if section.num_threads > 0 else host.num_cores
    attention = choose_attention(section, model, device)
    return replace(section, device=device, num_threads=threads, attention_backend=attention)


def _model(
    section: ModelSection, cache: CacheSection, model: ModelConfig, device: str
) -> ModelSection:
    quantization = section.quantization
    if quantization == "auto":
        quantization = "q8_0" if model.is_quantized and device == "cpu" else "none"
    return replace(
        section,
        tokenizer_path=section.tokenizer_path or section.path,
        served_name=section.served_name or section.path,
        dtype=choose_dtypes(section, cache, device)[0],
        quantization=quantization,
        context_len=model.context_len if section.context_len < 0 else section.context_len,
    )


def _cache(
    section: CacheSection, model: ModelConfig, dtype: str, device: str, host: HostFacts
) -> CacheSection:
    budget, available = section.memory_bytes, host.available_bytes
    if device == "cuda":
        available = host.device.total
    if budget < 0:
        is_cuda = device == "cuda"
        budget = cuda_budget(section, model, dtype, host) if is_cuda else cpu_budget(section, host)
    slope = section.replay_slope
    if slope < 0:
        slope = min(model.replay_slope, max(0, model.window - 1))
    saving = section.adopt_min_saving
    grid = section.canonical_grid
    if grid < 0:
        grid = default_grid(model.window if model.window_layers else 0, section.page_size)
    return replace(
        section,
        memory_bytes=budget,
        memory_fraction=budget / max(1, available),
        kv_dtype=_kv_dtype(section, model, dtype, device),
        trim_rule=_trim_rule(section, model),
        replay_slope=slope,
        canonical_grid=grid,
        adopt_min_saving=section.page_size if saving < 0 else saving,
    )


def _kv_dtype(section: CacheSection, model: ModelConfig, dtype: str, device: str) -> str:
    if section.kv_dtype == "auto" and model.latent is not None:
        return "fp4"
    return choose_dtypes(ModelSection(dtype=dtype), section, device)[1]


def _trim_rule(section: CacheSection, model: ModelConfig) -> str:
    """Trimming is an approximation, like the replay that it was trained with."""
    if model.latent is None and not section.trim_clips:
        raise ConfigError(f"--no-swa-trim-clip: {model.architecture} has no decoder layers")
    if section.trim_rule == "auto":
        return "prompt" if model.latent and section.replay_mode == "bounded" else "off"
    if section.trim_rule != "off" and model.latent is None:
        raise ConfigError(
            f"--enable-decoder-swa-bounded-replay: {model.architecture} has no decoder layers "
            "that later tokens do not need"
        )
    return section.trim_rule


def _sched(
    section: SchedSection, cache: CacheSection, model: ModelConfig, limits: Limits, seed: int
) -> SchedSection:
    draft_tokens = _draft_tokens(section, model)
    running = section.max_running
    if running < 0:
        running = _auto_running(cache, model, draft_tokens, limits.max_running)
    rule = ReplayRule.from_config(model, cache)
    chunk = section.chunk_tokens
    if chunk < 0:
        is_bounded = rule.default.mode == "bounded"
        replay = rule.longest_run(rule.default) if is_bounded else 0
        # Decode rows come first: with one for each other slot, a replay must still fit (B15).
        need = replay + cache.page_size + (running - 1) * (1 + draft_tokens)
        chunk = align_up(max(limits.chunk_tokens, need), cache.page_size)
    else:
        _check_chunk(chunk, running, cache, rule)
    return replace(
        section,
        max_running=running,
        chunk_tokens=chunk,
        draft_tokens=draft_tokens,
        # All requests wait for their last answer: planned ahead, they would share no step.
        overlap=section.overlap and not draft_tokens,
        seed=seed if section.seed < 0 else section.seed,
    )


def _check_chunk(chunk: int, running: int, cache: CacheSection, rule: ReplayRule) -> None:
    rows = running - 1 + cache.page_size
    if chunk < rows:
        raise ConfigError(
            f"--chunked-prefill-size {chunk}: must be at least {rows}, a row for each of "
            f"{running - 1} other requests and a page of {cache.page_size}"
        )
    if cache.prefix_cache:
        rule.check_chunk(chunk, cache.page_size)


def _draft_tokens(section: SchedSection, model: ModelConfig) -> int:
    asked = section.draft_tokens
    if section.speculation == "none":
        if asked > 0:
            raise ConfigError(
                f"--speculative-num-draft-tokens {asked}: needs --speculative-algorithm"
            )
        return 0
    draft = model.latent.draft if model.latent else None
    if draft is None or not draft.num_blocks:
        raise ConfigError(
            f"--speculative-algorithm {section.speculation}: {model.architecture} has no draft "
            "head in this checkpoint"
        )
    if asked < 0:
        return draft.block_size
    if not 1 <= asked <= draft.block_size:
        raise ConfigError(
            f"--speculative-num-draft-tokens {asked}: must be from 1 to {draft.block_size}, the "
            "block of the draft head"
        )
    return asked


def _auto_running(cache: CacheSection, model: ModelConfig, draft_tokens: int, most: int) -> int:
    """As many slots as the default, but windows take at most half of the memory, warm ones too. One
    of these is enough for the slots of requests that do not run to keep theirs."""
    slot_bytes = KVLayout.from_config(model, cache, draft_tokens, 1).slot_bytes
    if slot_bytes == 0:
        return most
    warm = 1 if cache.warm_windows < 0 else cache.warm_windows
    return max(1, min(most, cache.memory_bytes // 2 // slot_bytes - 1 - warm))


def _warm(cache: CacheSection, sched: SchedSection, model: ModelConfig) -> int:
    """By default as many as run, but all windows together take at most half of the memory. None
    without window layers or without hits: there is nothing to keep, or nobody to take it."""
    if not model.window_layers or not cache.prefix_cache:
        return 0
    if cache.warm_windows >= 0:
        return cache.warm_windows
    slot_bytes = KVLayout.from_config(model, cache, sched.draft_tokens, 1).slot_bytes
    running = sched.max_running
    return max(0, min(running, cache.memory_bytes // 2 // slot_bytes - 1 - running))


def _net(section: NetSection) -> NetSection:
    return replace(section, log_level_http=section.log_level_http or section.log_level)


def _ranges(config: ServerConfig, model: ModelConfig) -> Sequence[Range]:
    """Values that the user gave; those of "auto" pass, being -1."""
    cache, sched, net, api = config.cache, config.sched, config.net, config.api
    rows = [
        ("--page-size", cache.page_size, 2, 1 << 16),
        ("--swa-replay-depth", cache.replay_depth, 1, 1 << 16),
        ("--stream-interval", net.stream_interval, 1, UNLIMITED),
        ("--port", net.port, 0, LARGEST_PORT),
        ("--timeout-keep-alive", net.keep_alive_s, 1, UNLIMITED),
        ("--max-body-bytes", net.max_body_bytes, 1024, UNLIMITED),
        ("--decode-log-interval", sched.decode_log_interval, 1, UNLIMITED),
        ("--dp-size", config.parallel.dp_size, 1, MAX_REPLICAS),
        ("--watchdog-timeout", sched.watchdog_s, 1, UNLIMITED),
        ("--priority-scheduling-preemption-threshold", sched.preempt_gap, 0, UNLIMITED),
        ("--log-requests-level", net.log_requests_level, 0, 3),
        ("--drain-timeout", api.drain_s, 0, UNLIMITED),
        ("--schedule-conservativeness", sched.conservativeness, 0.01, UNLIMITED),
    ]
    if cache.page_size % 2:
        raise ConfigError(f"--page-size {cache.page_size}: must be even")
    given = [
        ("--context-length", config.model.context_len, 1, model.context_len),
        ("--max-running-requests", sched.max_running, 1, 1 << 16),
        ("--max-queued-requests", sched.max_queued, 1, UNLIMITED),
        ("--chunked-prefill-size", sched.chunk_tokens, 1, UNLIMITED),
        ("--random-seed", sched.seed, 0, UNLIMITED),
        ("--kv-cache-memory", cache.memory_bytes, 1, UNLIMITED),
        ("--mem-fraction-static", cache.memory_fraction, 0.001, 1),
        ("--max-total-tokens", cache.max_total_tokens, cache.page_size, UNLIMITED),
        ("--swa-replay-slope", cache.replay_slope, 0, max(0, model.window - 1)),
        ("--swa-canonical-grid", cache.canonical_grid, 1, UNLIMITED),
        ("--adopt-min-saving", cache.adopt_min_saving, 0, UNLIMITED),
        ("--queue-timeout", api.queue_timeout_s, 0, UNLIMITED),
        ("--request-timeout", api.request_timeout_s, 0, UNLIMITED),
        ("--max-warm-windows", cache.warm_windows, 0, 1 << 16),
        ("--num-threads", config.parallel.num_threads, 1, 1 << 10),
        ("--cuda-graph-max-bs-decode", config.parallel.graph_batch, 0, 1 << 16),
    ]
    return [*rows, *(row for row in given if row[1] != -1)]


def _check_texts(net: NetSection, api: ApiSection) -> None:
    if not METRIC_NAME.fullmatch(api.metrics_prefix + "x"):
        raise ConfigError(
            f"--metrics-prefix {api.metrics_prefix}: may hold letters, digits, _ and :"
        )
    if net.root_path and (not net.root_path.startswith("/") or net.root_path.endswith("/")):
        raise ConfigError(
            f"--fastapi-root-path {net.root_path}: must begin with / and not end with it"
        )
    files = (("--ssl-keyfile", net.ssl_keyfile), ("--ssl-certfile", net.ssl_certfile))
    for flag, path in files:
        if path and not os.access(path, os.R_OK):
            raise ConfigError(f"{flag} {path}: cannot be read")
    if bool(net.ssl_keyfile) != bool(net.ssl_certfile):
        raise ConfigError("--ssl-keyfile and --ssl-certfile need each other")
    try:
        is_object = isinstance(orjson.loads(api.template_kwargs), dict)
    except orjson.JSONDecodeError:
        is_object = False
    if not is_object:
        raise ConfigError(
            f"--default-chat-template-kwargs {api.template_kwargs}: must be a JSON object"
        )


def _check(rows: Sequence[Range]) -> None:
    for flag, value, low, high in rows:
        if not low <= value <= high:
            limit = f"at least {low:g}" if high == UNLIMITED else f"from {low:g} to {high:.15g}"
            raise ConfigError(f"{flag} {value:.15g}: must be {limit}{_advice(flag)}")


def _advice(flag: str) -> str:
    if flag == "--context-length":
        return ", the model's; --json-model-override-args can raise that"
    return ""
