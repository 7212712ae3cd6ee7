"""Flags of scheduling, cache, replay and devices."""

from __future__ import annotations

from ..srt.config import EVICTION_POLICIES, REPLAY_MODES
from .row import DTYPES, FLOAT, INT, SIZE, SWITCH, Flag

OTHER_COMPILERS = ("xgrammar", "outlines", "guidance", "lm-format-enforcer", "auto")

OTHER_ATTENTION = (
    ("torch", "torch_native"),
    *((x, "auto") for x in ("fa3", "fa4", "FLASH_ATTN", "TRITON_ATTN", "FLASHINFER", "trtllm_mha")),
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
    Flag(
        "--enable-priority-scheduling",
        "sched.priorities",
        "honour `priority` of requests: higher is more important",
        SWITCH,
    ),
    Flag(
        "--priority-scheduling-preemption-threshold",
        "sched.preempt_gap",
        "a waiting request of so much more priority takes a running one's place",
        INT,
    ),
    Flag("--schedule-conservativeness", "sched.conservativeness", "above 1 admits less", FLOAT),
    Flag(
        "--speculative-algorithm",
        "sched.speculation",
        "dspark: the checkpoint's own draft head guesses tokens, which the model then verifies in "
        "one step; the output is distributed as without",
        choices=("none", "dspark"),
        synonyms=(("DSPARK", "dspark"),),
    ),
    Flag(
        "--speculative-num-draft-tokens",
        "sched.draft_tokens",
        "tokens guessed per step; default and limit: the block of the draft head",
        INT,
    ),
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
    Flag(
        "--grammar-backend",
        "sched.grammar_backend",
        "compiler of grammars that answers must match; none: such requests are answered 501",
        aliases=("--guided-decoding-backend",),
        choices=("llguidance", "none"),
        synonyms=tuple((name, "llguidance") for name in OTHER_COMPILERS),
        why="llguidance takes its place",
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
        "of keys and values; fp4 and fp8: of models with compressed entries, where float32 is for "
        "checking numerics: nothing is rounded then",
        choices=("auto", "fp4", "fp8", "float32", "bfloat16"),
        synonyms=DTYPES[1:],
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
        "exact: recompute all that window layers need; canonical: a hit gives what a cold run of "
        "this mode gives; off: no prefix hits on models with window layers",
        choices=REPLAY_MODES,
    ),
    Flag(
        "--swa-canonical-grid",
        "cache.canonical_grid",
        "tokens between the points where canonical prompts replay and hits end; a multiple of the "
        "page size; default and least: 8 windows",
        SIZE,
    ),
    Flag(
        "--swa-replay-slope",
        "cache.replay_slope",
        "rows that each window layer replays more than the one above",
        INT,
    ),
    Flag(
        "--enable-decoder-swa-bounded-replay",
        "cache.trim_rule",
        "decoder layers run the last window of a prompt only (DeepSeek-V4.1; default with bounded "
        "replay)",
        SWITCH,
        const="prompt",
        negation="--no-enable-decoder-swa-bounded-replay",
        negative="off",
    ),
    Flag(
        "--swa-trim-rule",
        "cache.trim_rule",
        "the last window of what: the prompt, or each chunk of it",
        choices=("auto", "prompt", "chunk", "off"),
    ),
    Flag(
        "--no-swa-trim-clip",
        "cache.trim_clips",
        "the first decoder layer sees its whole window, as it has keys of all rows",
        SWITCH,
        const=False,
        negation="--swa-trim-clip",
        negative=True,
    ),
    Flag(
        "--swa-short-hits",
        "cache.short_hits",
        "hits of no more tokens than a replay runs: drop, or replay from the first token",
        choices=("drop", "replay"),
    ),
    Flag("--swa-replay-depth", "cache.replay_depth", "windows that the top layer replays", INT),
    Flag(
        "--adopt-min-saving",
        "cache.adopt_min_saving",
        "tokens that a prefix hit must save; default: a page",
        SIZE,
    ),
    Flag(
        "--max-warm-windows",
        "cache.warm_windows",
        "window slots beyond those of running requests: windows of ended requests stay there, and "
        "a next turn replays nothing; 0: none; default: as many as run, if memory allows",
        INT,
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
        "auto: a GPU where there is one and the model has kernels for it",
        choices=("auto", "cpu", "cuda"),
    ),
    Flag(
        "--attention-backend",
        "parallel.attention_backend",
        "attention on a GPU; torch_native: the reference, slow, on any device",
        choices=("auto", "triton", "flashinfer", "torch_native"),
        synonyms=OTHER_ATTENTION,
        why="the backend of this device takes its place",
    ),
    Flag(
        "--disable-cuda-graph",
        "parallel.cuda_graph",
        "decode steps are not captured",
        SWITCH,
        ("--enforce-eager",),
        const=False,
        negation="--no-enforce-eager",
        negative=True,
    ),
    Flag(
        "--cuda-graph-max-bs-decode",
        "parallel.graph_batch",
        "requests of the largest captured decode step",
        INT,
        ("--cuda-graph-max-bs", "--max-cudagraph-capture-size"),
    ),
    Flag(
        "--tp-size",
        "parallel.tp_size",
        "tensor-parallel workers; this version: 1",
        INT,
        ("--tensor-parallel-size", "--tp"),
    ),
    Flag(
        "--dp-size",
        "parallel.dp_size",
        "replicas on this host, behind a router, whose flags begin with --router-",
        INT,
        ("--data-parallel-size", "--dp"),
    ),
    Flag(
        "--num-threads",
        "parallel.num_threads",
        "arithmetic threads of a worker; default: physical cores",
        INT,
        ("--threads", "-t"),
    ),
)
