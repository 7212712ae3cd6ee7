"""ServerConfig: nested frozen sections, each default once, here.

Sections are passed down, never the whole. Flags are rows of `treadle/flags/`; an alias or an
ignored flag of another server never becomes a field. At most 80 fields in all.
Values of "auto" or -1 that depend on model or machine are settled by `resolve.py`, which is pure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

EVICTION_POLICIES = ("lru", "lfu", "slru", "fifo")
SECRETS = frozenset({"api_key", "admin_api_key"})  # names of fields that are never shown
MAX_REPLICAS = 64  # of one command
REPLAY_MODES = ("bounded", "exact", "canonical", "off")


@dataclass(frozen=True, slots=True)
class ModelSection:
    path: str = ""
    tokenizer_path: str = ""  # "" : the model path
    served_name: str = ""  # "" : the model path
    load_format: str = "auto"  # auto | safetensors | gguf | dummy
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16: arithmetic of unquantised layers
    quantization: str = "auto"  # auto | none | q8_0 (int8 in groups of 32); auto: q8_0 for GGUF
    context_len: int = -1  # -1: from the checkpoint
    override_args: str = "{}"  # JSON merged into the model's config
    chat_template: str = ""  # "" : the tokenizer's; a built-in name, a file, or template text
    sampling_defaults: str = "model"  # model | openai
    logprobs_mode: str = "raw_logprobs"  # raw_logprobs | processed_logprobs: of output
    reasoning_parser: str = ""  # "" : reasoning stays in the content; auto, or a format's name
    tool_call_parser: str = ""  # "" and auto: the model's; or a dialect's name


@dataclass(frozen=True, slots=True)
class CacheSection:
    page_size: int = 16  # tokens; even
    max_total_tokens: int = -1  # cap of global-KV tokens; -1: what the budget gives
    memory_bytes: int = -1  # budget of pages and windows; -1: a share of what is free
    memory_fraction: float = -1.0  # of device memory; -1: by device
    kv_dtype: str = "auto"  # auto | fp4 | fp8 | bfloat16 | float32; which, by model
    prefix_cache: bool = True
    eviction_policy: str = "lru"  # one of EVICTION_POLICIES
    replay_mode: str = "bounded"  # one of REPLAY_MODES
    replay_slope: int = -1  # rows more per window layer downwards; -1: by model
    replay_depth: int = 1  # windows at the top layer
    short_hits: str = "drop"  # drop | replay: hits of no more than a replay's rows
    trim_rule: str = "auto"  # auto | prompt | chunk | off: last rows only in decoder layers
    trim_clips: bool = True  # the cut layer sees no more of its window than those above
    canonical_grid: int = -1  # tokens; -1: the smallest legal, `cache/grid.py`
    adopt_min_saving: int = -1  # tokens a hit must save; -1: page_size
    warm_windows: int = -1  # slots that keep windows of ended requests; -1: max_running if they fit
    check_invariants: bool = False  # CacheManager.check() after every step


@dataclass(frozen=True, slots=True)
class SchedSection:
    max_running: int = -1  # slots; -1: by device
    max_queued: int = -1  # -1: no limit
    chunk_tokens: int = -1  # rows of prompt per step; -1: by device
    policy: str = "fcfs"  # fcfs | lpm | random | dfs-weight | lof
    priorities: bool = False  # off: `priority` of a request has no effect
    preempt_gap: int = 10  # a waiting request of so much more priority takes a running one's place
    conservativeness: float = 1.0
    overlap: bool = True  # plan one step ahead of the last commit
    speculation: str = "none"  # none | dspark
    draft_tokens: int = -1  # verified per step; -1: the draft head's block; 0 without speculation
    grammar_backend: str = "llguidance"  # llguidance | none: requests with grammars are refused
    seed: int = -1  # of request seeds; -1: random
    decode_log_interval: int = 40  # steps between status lines
    watchdog_s: float = 300.0  # a step longer than this ends the replica


@dataclass(frozen=True, slots=True)
class ParallelSection:
    device: str = "auto"  # auto | cpu | cuda
    tp_size: int = 1
    dp_size: int = 1  # replicas of this host, which share its cores and memory
    num_threads: int = -1  # CPU arithmetic threads per worker; -1: physical cores / tp
    attention_backend: str = "auto"  # auto | triton | torch_native; `device.py` has the table
    cuda_graph: bool = True  # decode steps are captured
    graph_batch: int = -1  # requests of the largest captured step; -1: by device, 0: none


@dataclass(frozen=True, slots=True)
class NetSection:
    host: str = "127.0.0.1"
    port: int = 30000
    api_key: str = ""
    keep_alive_s: int = 330  # agents idle up to 300 s between turns on a pooled socket
    transport: str = "ipc"  # ipc | tcp: ZeroMQ between our processes
    strict_model_name: bool = False
    cache_report: bool = True
    stream_interval: int = 1  # tokens per stream event
    max_body_bytes: int = 16 << 20  # decoding that many holds the event loop for half a second
    warmup: bool = True
    log_level: str = "info"
    log_level_http: str = ""
    root_path: str = ""  # the prefix that a proxy in front takes off
    ssl_keyfile: str = ""
    ssl_certfile: str = ""  # "" : plain HTTP
    log_requests: bool = False
    log_requests_level: int = 0  # 0 facts, 1 options too, 2 texts cut, 3 whole texts
    log_requests_format: str = "text"  # text | json


@dataclass(frozen=True, slots=True)
class ApiSection:
    """Who may ask what, for how long, and what answers carry."""

    cache_isolation: str = "none"  # none | per-key: who shares cached prefixes
    admin_api_key: str = ""  # "" : the user key opens the control routes too
    cors_origins: str = ""  # comma-separated, or "*"; "" : no CORS headers
    queue_timeout_s: float = -1.0  # until a request is admitted; -1: no limit
    request_timeout_s: float = -1.0  # until it has ended; -1: no limit
    template_kwargs: str = "{}"  # JSON: arguments of the chat template, before a request's own
    usage_chunk: bool = False  # streams of OpenAI routes tell their usage unasked
    metrics_prefix: str = "sglang:"  # of names that dashboards of other servers know
    drain_s: float = 300.0  # how long a stopping server lets running requests go on


@dataclass(frozen=True, slots=True)
class ServerConfig:
    model: ModelSection = field(default_factory=ModelSection)
    cache: CacheSection = field(default_factory=CacheSection)
    sched: SchedSection = field(default_factory=SchedSection)
    parallel: ParallelSection = field(default_factory=ParallelSection)
    net: NetSection = field(default_factory=NetSection)
    api: ApiSection = field(default_factory=ApiSection)


def cache_folder() -> Path:
    """Where model files that we join are kept: `$TREADLE_CACHE`, else `~/.cache/treadle`."""
    return Path(os.environ.get("TREADLE_CACHE") or Path.home() / ".cache" / "treadle")
