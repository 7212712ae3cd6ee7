"""Flags of the HTTP server and of what it answers."""

from __future__ import annotations

from .row import FLOAT, INT, SIZE, SWITCH, Flag

SERVER = (
    Flag("--host", "net.host", "bind address"),
    Flag("--port", "net.port", "0: any free port", INT),
    Flag("--api-key", "net.api_key", "bearer token of all routes but health and metrics"),
    Flag(
        "--admin-api-key",
        "api.admin_api_key",
        "key of the routes that control (flush, abort all, profile); default: --api-key",
    ),
    Flag(
        "--cache-isolation",
        "api.cache_isolation",
        "per-key: requests with different API keys never share cached prefixes",
        choices=("none", "per-key"),
    ),
    Flag(
        "--cors-allow-origins",
        "api.cors_origins",
        "origins whose web pages may call, comma-separated, or *; default: none",
        aliases=("--allowed-origins",),
    ),
    Flag(
        "--queue-timeout",
        "api.queue_timeout_s",
        "seconds until a request that still waits is answered 503; default: no limit",
        FLOAT,
    ),
    Flag(
        "--request-timeout",
        "api.request_timeout_s",
        "seconds until a request that has not ended is answered 503; default: no limit",
        FLOAT,
    ),
    Flag(
        "--drain-timeout",
        "api.drain_s",
        "seconds that a stopping server lets running requests go on",
        FLOAT,
    ),
    Flag(
        "--fastapi-root-path",
        "net.root_path",
        "the prefix that a proxy in front takes off, such as /llm",
        aliases=("--root-path",),
    ),
    Flag("--ssl-keyfile", "net.ssl_keyfile", "key file of TLS"),
    Flag("--ssl-certfile", "net.ssl_certfile", "certificate file of TLS"),
    Flag(
        "--default-chat-template-kwargs",
        "api.template_kwargs",
        "JSON: arguments of the chat template where a request has none",
    ),
    Flag(
        "--stream-response-default-include-usage",
        "api.usage_chunk",
        "streams of the OpenAI routes tell their usage unasked",
        SWITCH,
        ("--enable-force-include-usage",),
    ),
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
