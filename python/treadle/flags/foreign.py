"""Flags of other servers that have no effect here, or that end the launch: each says why.

A row is `ACCEPTED` when a server without the flag still does what its user wants, or refuses the
requests that need it; `REFUSED` when the server would silently be another one than was asked for.
A row that becomes a feature moves to the section it belongs to.
"""

from __future__ import annotations

from .row import Flag, Kind, Status

SWITCH, INT, SIZE, FLOAT = Kind.SWITCH, Kind.INT, Kind.SIZE, Kind.FLOAT

_OWN_KERNELS = "kernels are chosen by device"


def _accepted(spelling: str, why: str, kind: Kind = Kind.TEXT, *aliases: str) -> Flag:
    return Flag(spelling, "", f"no effect: {why}", kind, aliases, status=Status.ACCEPTED, why=why)


def _refused(
    spelling: str, what: str, kind: Kind = Kind.TEXT, *aliases: str, harmless: str = ""
) -> Flag:
    why = f"this version does not have {what}"
    values = (harmless,) if harmless else ()
    status = Status.REFUSED
    return Flag(spelling, "", why, kind, aliases, status=status, why=why, harmless=values)


ACCEPTED = (
    _accepted("--trust-remote-code", "no code of a checkpoint is ever run", SWITCH),
    _accepted("--tokenizer-mode", "there is one tokenizer implementation"),
    _accepted("--tokenizer-backend", "there is one tokenizer implementation"),
    _accepted("--model-impl", "every model here is our own implementation"),
    _accepted("--jinja", "chat templates are always jinja", SWITCH),
    _accepted("--enable-auto-tool-choice", "tools are always served", SWITCH),
    _accepted("--enable-mixed-chunk", "prompt and generated rows always share steps", SWITCH),
    _accepted("--enable-chunked-prefill", "prompts are always cut into chunks", SWITCH),
    _accepted("--max-prefill-tokens", "prompts are always cut into chunks", SIZE),
    _accepted("--sleep-on-idle", "an idle server always sleeps", SWITCH),
    _accepted("--retraction-policy", "the order of preemption is fixed"),
    _accepted("-ub", "a step is never split", SIZE, "--ubatch-size"),
    _accepted("--swa-full-tokens-ratio", "windows are sized by --max-running-requests", FLOAT),
    _accepted("--swa-prefix-tails", "windows are rebuilt by replay", INT),
    _accepted(
        "--disable-hybrid-swa-memory",
        "window layers always keep one window",
        SWITCH,
        "--disable-hybrid-kv-cache-manager",
        "--swa-full",
    ),
    _accepted("--prefill-attention-backend", _OWN_KERNELS),
    _accepted("--decode-attention-backend", _OWN_KERNELS),
    _accepted("--sampling-backend", _OWN_KERNELS),
    _accepted("--enable-torch-compile", "models are not compiled", SWITCH),
    _accepted("--enable-metrics", "/metrics is always there", SWITCH),
    _accepted("--disable-log-stats", "statistics are read only when /metrics is", SWITCH),
)

REFUSED = (
    _refused("--skip-tokenizer-init", "serving without a tokenizer", SWITCH),
    _refused(
        "--tokenizer-worker-num",
        "several tokenizer processes",
        INT,
        "--num-tokenizer",
        "--renderer-num-workers",
        harmless="1",
    ),
    _refused("--detokenizer-worker-num", "detokenizer processes", INT, harmless="1"),
    _refused("--model-loader-extra-config", "loader options", harmless="{}"),
    _refused("--revision", "model hub access"),
    _refused("--download-dir", "model hub access"),
    _refused("--is-embedding", "embedding models", SWITCH),
    _refused("--weight-version", "weight updates", harmless="default"),
    _refused("--warmups", "named warm-ups"),
    _refused("--enable-http2", "HTTP/2", SWITCH),
    _refused("--completion-template", "templates for `suffix`"),
    _refused("--trust-request-chat-template", "templates in requests", SWITCH),
    _refused("--preferred-sampling-params", "preferred sampling parameters"),
    _refused("--allow-auto-truncate", "truncation of long prompts", SWITCH),
    _refused("--incremental-streaming-output", "deltas on /generate", SWITCH),
    _refused("--enable-streaming-session", "streaming sessions", SWITCH),
    _refused("--enable-custom-logit-processor", "code in requests", SWITCH),
    _refused("--enable-return-hidden-states", "hidden states in responses", SWITCH),
    _refused("--num-continuous-decode-steps", "several steps per plan", INT, harmless="1"),
    _refused("--scheduler-recv-interval", "an interval between polls", INT, harmless="1"),
    _refused(
        "--num-gpu-blocks-override", "a page count; use --max-total-tokens", INT, "--num-pages"
    ),
    _refused("--enable-session-radix-cache", "session references", SWITCH),
    _refused("--enable-hierarchical-cache", "a host cache tier", SWITCH, "--enable-hicache"),
    _refused("--hicache-ratio", "a host cache tier", FLOAT),
    _refused("--hicache-size", "a host cache tier", INT),
    _refused("--hicache-write-policy", "a host cache tier"),
    _refused("--hicache-storage-backend", "a storage cache tier"),
    _refused("--enable-deterministic-inference", "it on a GPU (a CPU always is)", SWITCH),
    _refused("--base-gpu-id", "a choice of GPUs; use CUDA_VISIBLE_DEVICES", INT, harmless="0"),
    _refused("--attn-dp-size", "attention data parallelism", INT, harmless="1"),
    _refused("--enable-dp-attention", "attention data parallelism", SWITCH),
    _refused(
        "--ep-size", "expert parallelism", INT, "--expert-parallel-size", "--ep", harmless="1"
    ),
    _refused("--pp-size", "pipeline parallelism", INT, "--pipeline-parallel-size", harmless="1"),
    _refused("--load-balance-method", "this spelling; use --router-policy"),
    _refused("--nnodes", "several machines", INT, harmless="1"),
    _refused("--node-rank", "several machines", INT, harmless="0"),
    _refused("--dist-init-addr", "several machines"),
    _refused("--speculative-config", "JSON for speculation; use --speculative-algorithm"),
    _refused("--speculative-draft-model-path", "draft models of their own"),
    _refused("--speculative-num-steps", "drafts in steps", INT),
    _refused("--speculative-eagle-topk", "trees of drafts", INT),
    _refused("--enable-lora", "adapters", SWITCH),
    _refused("--lora-paths", "adapters", Kind.TEXT, "--lora-modules"),
    _refused("--disaggregation-mode", "prefill and decode on separate servers", harmless="null"),
    _refused("--enable-memory-saver", "memory release", SWITCH, "--enable-sleep-mode"),
    _refused("--enable-metrics-for-all-schedulers", "several schedulers", SWITCH),
    _refused("--extra-metric-labels", "extra metric labels"),
    _refused("--bucket-time-to-first-token", "histogram buckets of your own"),
    _refused("--bucket-inter-token-latency", "histogram buckets of your own"),
    _refused("--bucket-e2e-request-latency", "histogram buckets of your own"),
    _refused("--enable-request-time-stats-logging", "stage times", SWITCH),
    _refused("--enable-trace", "tracing", SWITCH),
    _refused("--otlp-traces-endpoint", "tracing"),
    _refused("--kv-events-config", "cache events"),
    _refused("--crash-dump-folder", "crash dumps"),
    _refused("--export-metrics-to-file", "metrics in files", SWITCH),
)

FOREIGN = (*ACCEPTED, *REFUSED)
