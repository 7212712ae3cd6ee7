"""The table of our flags: spelling, spellings of other servers, config field, kind, help.

Defaults are not here but in `srt/config.py`. What other servers have and we do not is in
`foreign_flags.py`, so that no flag is ignored in silence. Parsing is `command_line.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .srt.config import EVICTION_POLICIES, REPLAY_MODES


class Status(StrEnum):
    IMPLEMENTED = "implemented"
    ACCEPTED = "accepted"  # no effect; `why` is told in one line when it is used
    REFUSED = "refused"  # ends the launch with `why`, unless the value is one of `harmless`


class Kind(StrEnum):
    TEXT = "text"
    INT = "int"
    SIZE = "size"  # an int; k, m, g are powers of 1000, K, M, G of 1024
    FLOAT = "float"
    SWITCH = "switch"  # no argument


@dataclass(frozen=True, slots=True)
class Flag:
    """`aliases` mean the same and take the same values. `synonyms` maps other words for a choice.
    `field` is a path into ServerConfig, "" when there is none. `negation` is the spelling that
    sets a switch the other way, and `const` what the switch itself sets.
    """

    spelling: str
    field: str
    help: str
    kind: Kind = Kind.TEXT
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    const: bool | str = True
    negation: str = ""
    negative: bool | str = False
    status: Status = Status.IMPLEMENTED
    why: str = ""
    harmless: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.spelling, *self.aliases)


SWITCH, INT, SIZE, FLOAT = Kind.SWITCH, Kind.INT, Kind.SIZE, Kind.FLOAT

_DTYPES = (("half", "float16"), ("float", "float32"), ("bf16", "bfloat16"), ("fp32", "float32"))

MODEL = (
    Flag(
        "--model-path",
        "model.path",
        "folder, GGUF file, or demo:smollm2-135m, demo:gemma3-270m",
        aliases=("--model", "-m"),
    ),
    Flag(
        "--tokenizer-path",
        "model.tokenizer_path",
        "folder or GGUF file of the tokenizer; default: the model's",
        aliases=("--tokenizer",),
    ),
    Flag(
        "--served-model-name",
        "model.served_name",
        "name in /v1/models and in responses; default: the model path",
        aliases=("--alias",),
    ),
    Flag(
        "--load-format",
        "model.load_format",
        "form of the weights; dummy: random weights",
        choices=("auto", "safetensors", "gguf", "dummy"),
    ),
    Flag(
        "--dtype",
        "model.dtype",
        "arithmetic of unquantised layers",
        choices=("auto", "float32", "bfloat16", "float16"),
        synonyms=_DTYPES,
    ),
    Flag(
        "--quantization",
        "model.quantization",
        "of weights in memory; auto: q8_0 (int8 in groups of 32) for quantised GGUF files",
        aliases=("-q",),
        choices=("auto", "none", "q8_0"),
    ),
    Flag(
        "--context-length",
        "model.context_len",
        "longest prompt and output together, tokens; default and limit: the model's",
        SIZE,
        ("--max-model-len", "-c"),
    ),
    Flag(
        "--json-model-override-args",
        "model.override_args",
        "JSON merged into the model's config",
        aliases=("--hf-overrides",),
    ),
    Flag(
        "--chat-template",
        "model.chat_template",
        "built-in name, jinja file or template text; default: the tokenizer's",
        aliases=("--chat-template-file",),
    ),
    Flag(
        "--sampling-defaults",
        "model.sampling_defaults",
        "from the model's generation config or those of the OpenAI API",
        choices=("model", "openai"),
    ),
    Flag(
        "--generation-config",
        "model.sampling_defaults",
        "as --sampling-defaults",
        choices=("model", "openai"),
        synonyms=(("auto", "model"), ("vllm", "openai")),
    ),
)

SERVER = (
    Flag("--host", "net.host", "bind address"),
    Flag("--port", "net.port", "0: any free port", INT),
    Flag("--api-key", "net.api_key", "bearer token of all routes but health and metrics"),
    Flag("--timeout-keep-alive", "net.keep_alive_s", "seconds an idle connection is kept", INT),
    Flag(
        "--skip-server-warmup",
        "net.warmup",
        "no warm-up request at start",
        SWITCH,
        ("--no-warmup",),
        const=False,
    ),
    Flag("--stream-interval", "net.stream_interval", "tokens per stream event", INT),
    Flag(
        "--enable-cache-report",
        "net.cache_report",
        "cached tokens in usage (default)",
        SWITCH,
        ("--enable-prompt-tokens-details",),
        negation="--no-enable-cache-report",
    ),
    Flag("--strict-model-name", "net.strict_model_name", "404 for other model names", SWITCH),
    Flag("--max-body-bytes", "net.max_body_bytes", "largest request body", SIZE),
    Flag(
        "--ipc-transport",
        "net.transport",
        "between our processes; tcp: loopback ports, open to other users of this machine",
        choices=("ipc", "tcp"),
    ),
)

SCHEDULING = (
    Flag(
        "--max-running-requests",
        "sched.max_running",
        "requests in a step",
        SIZE,
        ("--max-num-seqs", "-np", "--parallel"),
    ),
    Flag(
        "--max-queued-requests",
        "sched.max_queued",
        "beyond it requests are answered 503; default: no limit",
        SIZE,
        ("--max-num-queued-reqs",),
    ),
    Flag(
        "--chunked-prefill-size",
        "sched.chunk_tokens",
        "prompt rows per step, replayed ones included",
        SIZE,
        ("--max-num-batched-tokens", "--max-prefill-length", "-b"),
    ),
    Flag(
        "--schedule-policy",
        "sched.policy",
        "order of admission",
        aliases=("--scheduling-policy",),
        choices=("fcfs", "lpm", "random", "dfs-weight", "lof"),
    ),
    Flag("--schedule-conservativeness", "sched.conservativeness", "above 1 admits less", FLOAT),
    Flag(
        "--disable-overlap-schedule",
        "sched.overlap",
        "plan only after the last result",
        SWITCH,
        ("--no-async-scheduling",),
        const=False,
        negation="--async-scheduling",
        negative=True,
    ),
    Flag("--random-seed", "sched.seed", "of requests without a seed", INT, ("--seed",)),
    Flag(
        "--watchdog-timeout",
        "sched.watchdog_s",
        "seconds after which a step ends the server",
        FLOAT,
    ),
)

CACHE = (
    Flag(
        "--kv-cache-memory",
        "cache.memory_bytes",
        "budget of pages and windows, bytes; default on CPU: a quarter of free memory, at most 2G",
        SIZE,
        ("--kv-cache-memory-bytes",),
    ),
    Flag(
        "--mem-fraction-static",
        "cache.memory_fraction",
        "budget as a share of free memory",
        FLOAT,
        ("--gpu-memory-utilization", "--memory-ratio"),
    ),
    Flag("--max-total-tokens", "cache.max_total_tokens", "cap of cached tokens", SIZE),
    Flag("--page-size", "cache.page_size", "tokens per page; even", SIZE, ("--block-size",)),
    Flag(
        "--kv-cache-dtype",
        "cache.kv_dtype",
        "of keys and values",
        choices=("auto", "float32", "bfloat16"),
        synonyms=_DTYPES[1:],
    ),
    Flag(
        "--disable-radix-cache",
        "cache.prefix_cache",
        "no prefix cache",
        SWITCH,
        ("--no-enable-prefix-caching",),
        const=False,
        negation="--enable-prefix-caching",
        negative=True,
    ),
    Flag(
        "--radix-eviction-policy",
        "cache.eviction_policy",
        "which pages leave first: unused for longest (lru), used least often (lfu), "
        "used only once (slru), oldest (fifo)",
        choices=EVICTION_POLICIES,
    ),
    Flag(
        "--swa-bounded-replay",
        "cache.replay_mode",
        "after a prefix hit, window layers recompute "
        "the last rows only; the result is an approximation",
        SWITCH,
        ("--enable-encoder-swa-bounded-replay",),
        const="bounded",
        negation="--no-swa-bounded-replay",
        negative="off",
    ),
    Flag(
        "--swa-replay-mode",
        "cache.replay_mode",
        "exact: recompute all that window layers need; "
        "off: no prefix hits on models with window layers",
        choices=REPLAY_MODES,
    ),
    Flag(
        "--swa-replay-slope",
        "cache.replay_slope",
        "rows that each window layer replays more than the one above",
        INT,
    ),
    Flag("--swa-replay-depth", "cache.replay_depth", "windows that the top layer replays", INT),
    Flag(
        "--adopt-min-saving",
        "cache.adopt_min_saving",
        "tokens that a prefix hit must save; default: a page",
        SIZE,
    ),
    Flag(
        "--check-cache-invariants",
        "cache.check_invariants",
        "count all pages after every step (slow)",
        SWITCH,
    ),
)

PARALLEL = (
    Flag(
        "--device",
        "parallel.device",
        "this version runs on the CPU",
        choices=("auto", "cpu", "cuda"),
    ),
    Flag(
        "--tp-size",
        "parallel.tp_size",
        "tensor-parallel workers; this version: 1",
        INT,
        ("--tensor-parallel-size", "--tp"),
    ),
    Flag(
        "--num-threads",
        "parallel.num_threads",
        "arithmetic threads of a worker; default: physical cores",
        INT,
        ("--threads", "-t"),
    ),
)

LOGGING = (
    Flag(
        "--log-level",
        "net.log_level",
        "of our processes",
        choices=("debug", "info", "warning", "error"),
    ),
    Flag(
        "--log-level-http",
        "net.log_level_http",
        "of the HTTP server; default: --log-level",
        choices=("debug", "info", "warning", "error"),
    ),
    Flag(
        "--log-requests",
        "net.log_requests",
        "a line per request, without its text",
        SWITCH,
        ("--enable-log-requests",),
    ),
    Flag("--decode-log-interval", "sched.decode_log_interval", "steps between status lines", INT),
)

SECTIONS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("model and tokenizer", MODEL),
    ("server", SERVER),
    ("scheduling", SCHEDULING),
    ("cache and replay", CACHE),
    ("devices and parallelism", PARALLEL),
    ("logging and metrics", LOGGING),
)
