"""Flags of the router, with the spellings of the SGLang gateway.

Defaults are in `router/config.py`; the fields below are its. What the gateway has and this router
has not is a row of `ROUTER_FOREIGN`, so that no flag is ignored in silence.
"""

from __future__ import annotations

from .row import FLOAT, INT, SIZE, SWITCH, WORDS, Flag, Kind, Status

POLICIES = (
    "session",
    "cache_aware",
    "power_of_two",
    "round_robin",
    "random",
    "consistent_hashing",
    "manual",
)
OURS = (("session_aware", "session"),)

SERVING = (
    Flag("--host", "net.host", "bind address"),
    Flag("--port", "net.port", "0: any free port", INT),
    Flag(
        "--api-key", "net.api_key", "bearer token that clients must show; it also goes to workers"
    ),
    Flag("--admin-api-key", "watch.admin_api_key", "key of the routes that control"),
    Flag("--ssl-keyfile", "net.ssl_keyfile", "key file of TLS", aliases=("--tls-key-path",)),
    Flag("--ssl-certfile", "net.ssl_certfile", "certificate of TLS", aliases=("--tls-cert-path",)),
    Flag("--timeout-keep-alive", "net.keep_alive_s", "seconds an idle connection is kept", INT),
    Flag(
        "--max-payload-size",
        "net.max_body_bytes",
        "largest request body",
        SIZE,
        ("--max-body-bytes",),
    ),
    Flag(
        "--log-level",
        "net.log_level",
        "of the router",
        choices=("debug", "info", "warning", "error"),
        synonyms=(("warn", "warning"),),
    ),
    Flag("--prometheus-port", "watch.prometheus_port", "of /metrics alone; -1: none", INT),
    Flag("--prometheus-host", "watch.prometheus_host", "bind address of that port"),
)

WORKERS = (
    Flag(
        "--worker-urls", "workers.urls", "http://host:port, http://host:port@RANK; several", WORDS
    ),
    Flag("--worker-file", "workers.file", "a file of addresses, one a line, which is followed"),
    Flag("--worker-dns", "workers.dns", "name:port; a worker for each address of the name"),
    Flag("--discovery-interval-secs", "workers.discovery_s", "between looks at those", FLOAT),
    Flag("--worker-api-key", "workers.api_key", "for the router's own questions, not for clients'"),
    Flag(
        "--worker-startup-timeout-secs",
        "workers.startup_timeout_s",
        "until a router that never had a ready worker ends",
        FLOAT,
    ),
    Flag(
        "--no-worker-tls-verification",
        "workers.ssl_verify",
        "certificates of workers are not checked",
        SWITCH,
        const=False,
    ),
)

CHOICE = (
    Flag("--policy", "policy.name", "who gets a request", choices=POLICIES, synonyms=OURS),
    Flag(
        "--keyless-policy",
        "policy.keyless",
        "of `session`, for requests that name no session",
        choices=("power_of_two", "cache_aware", "round_robin", "random"),
    ),
    Flag(
        "--session-key-sources",
        "policy.key_sources",
        "in order: header, body, prompt_cache_key, user, previous_response_id, derived",
        WORDS,
    ),
    Flag(
        "--session-headers",
        "policy.key_headers",
        "that name a session, in order",
        WORDS,
        ("--routing-key-override",),
    ),
    Flag("--session-ttl-secs", "policy.session_ttl_s", "until an idle session is forgotten", FLOAT),
    Flag("--max-sessions", "policy.session_capacity", "that are remembered", INT),
    Flag("--load-eps", "policy.load_eps", "a worker's load may be 1 + this times the mean", FLOAT),
    Flag("--load-gap-tokens", "policy.load_gap", "or this much more than the mean", SIZE),
    Flag("--max-spills", "policy.max_spills", "times running until a session moves", INT),
    Flag(
        "--cache-isolation",
        "policy.cache_isolation",
        "per-key: sessions of different API keys are never the same",
        choices=("none", "per-key"),
    ),
    Flag("--cache-threshold", "policy.cache_threshold", "share of a prompt that must match", FLOAT),
    Flag("--balance-abs-threshold", "policy.balance_abs", "cache_aware: requests apart", INT),
    Flag("--balance-rel-threshold", "policy.balance_rel", "cache_aware: and times as many", FLOAT),
    Flag("--max-tree-size", "policy.tree_bytes", "cache_aware: bytes of remembered text", INT),
    Flag(
        "--assignment-mode",
        "policy.assignment",
        "manual: of a new key",
        choices=("random", "min_load", "min_group"),
    ),
    Flag("--max-idle-secs", "policy.max_idle_s", "manual: until a key is forgotten", FLOAT),
)

HEALTH = (
    Flag("--health-check-endpoint", "health.endpoint", "of readiness; without it /health"),
    Flag("--health-check-interval-secs", "health.interval_s", "of ready workers", FLOAT),
    Flag("--health-check-timeout-secs", "health.timeout_s", "of a probe", FLOAT),
    Flag("--load-monitor-interval", "health.load_interval_s", "between reads of loads", FLOAT),
    Flag("--cb-failure-threshold", "breaker.failure_threshold", "running, to open", INT),
    Flag("--cb-success-threshold", "breaker.success_threshold", "running, to close", INT),
    Flag("--cb-timeout-duration-secs", "breaker.timeout_s", "the longest back-off", FLOAT),
    Flag("--cb-window-duration-secs", "breaker.window_s", "failures apart are not running", FLOAT),
    Flag(
        "--disable-circuit-breaker",
        "breaker.is_on",
        "failures take nobody out",
        SWITCH,
        const=False,
    ),
    Flag("--ramp-secs", "limits.ramp_s", "until a returned worker has its full share", FLOAT),
    Flag("--min-dwell-secs", "limits.min_dwell_s", "until a returned worker is trusted", FLOAT),
    Flag("--drain-timeout-secs", "limits.drain_timeout_s", "for requests of a drain", FLOAT),
)

REQUESTS = (
    Flag("--retry-max-retries", "retry.max_retries", "0 or 1: two attempts at most", INT),
    Flag("--retry-initial-backoff-ms", "retry.back_off_ms", "before the second attempt", INT),
    Flag("--retry-budget", "retry.budget", "second attempts per request, in the long run", FLOAT),
    Flag("--disable-retries", "retry.is_on", "one attempt only", SWITCH, const=False),
    Flag("--max-concurrent-requests", "limits.max_concurrent", "-1: no limit", INT),
    Flag("--queue-size", "limits.queue_size", "of requests beyond that; full: 429", INT),
    Flag("--queue-timeout-secs", "limits.queue_timeout_s", "in that queue; then 408", FLOAT),
    Flag(
        "--rate-limit-tokens-per-second", "limits.rate_limit", "requests a second; -1: any", FLOAT
    ),
    Flag("--request-timeout-secs", "limits.request_timeout_s", "to the first byte", FLOAT),
    Flag("--idle-timeout-secs", "limits.idle_timeout_s", "between two bytes of an answer", FLOAT),
    Flag("--connect-timeout-secs", "limits.connect_timeout_s", "to reach a worker", FLOAT),
    Flag("--shutdown-grace-period-secs", "limits.grace_s", "for requests at the end", FLOAT),
)

ROUTER_SECTIONS = (
    ("serving", SERVING),
    ("workers", WORKERS),
    ("choice of a worker", CHOICE),
    ("health", HEALTH),
    ("requests", REQUESTS),
)


def _accepted(spelling: str, why: str, kind: Kind = Kind.TEXT, *aliases: str) -> Flag:
    return Flag(spelling, "", f"no effect: {why}", kind, aliases, status=Status.ACCEPTED, why=why)


def _refused(spelling: str, what: str, kind: Kind = Kind.TEXT, *aliases: str) -> Flag:
    why = f"this router does not have {what}"
    return Flag(spelling, "", why, kind, aliases, status=Status.REFUSED, why=why)


ROUTER_FOREIGN = (
    _accepted(
        "--eviction-interval",
        "entries leave as others come",
        INT,
        "--eviction-interval-secs",
    ),
    _accepted("--retry-max-backoff-ms", "there is one retry", INT),
    _accepted("--retry-backoff-multiplier", "there is one retry", FLOAT),
    _accepted("--retry-jitter-factor", "half of the back-off is jitter", FLOAT),
    _accepted("--health-failure-threshold", "probes count for the breaker", INT),
    _accepted("--health-success-threshold", "one success is enough to start", INT),
    _accepted("--log-json", "logs are lines of key=value", SWITCH),
    _refused("--block-size", "cache events", INT),
    _refused("--prefix-token-count", "the policy prefix_hash", INT),
    _refused("--prefix-hash-load-factor", "the policy prefix_hash", FLOAT),
    _refused(
        "--dp-aware", "this flag; name ranks in --worker-urls as http://host:port@RANK", SWITCH
    ),
    _refused("--pd-disaggregation", "prefill and decode on separate servers", SWITCH),
    _refused("--prefill", "prefill and decode on separate servers", WORDS),
    _refused("--decode", "prefill and decode on separate servers", WORDS),
    _refused("--prefill-policy", "prefill and decode on separate servers"),
    _refused("--decode-policy", "prefill and decode on separate servers"),
    _refused("--model-path", "token-level policies"),
    _refused("--tokenizer-path", "token-level policies"),
    _refused("--enable-igw", "several models behind one router", SWITCH),
    _refused("--service-discovery", "Kubernetes discovery; use --worker-dns", SWITCH),
    _refused("--selector", "Kubernetes discovery; use --worker-dns", WORDS),
    _refused("--request-id-headers", "other headers of ids than X-Request-ID", WORDS),
    _refused("--log-dir", "log files"),
    _refused("--enable-trace", "tracing", SWITCH),
)
