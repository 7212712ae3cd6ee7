"""Flags of logs and metrics."""

from __future__ import annotations

from .row import INT, SWITCH, Flag

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
        "a line per request",
        SWITCH,
        ("--enable-log-requests",),
    ),
    Flag(
        "--log-requests-level",
        "net.log_requests_level",
        "0: route, status, time; 1: and options; 2: and the begin of texts; 3: and all texts",
        INT,
    ),
    Flag(
        "--log-requests-format",
        "net.log_requests_format",
        "of the line per request",
        choices=("text", "json"),
    ),
    Flag(
        "--metrics-prefix",
        "api.metrics_prefix",
        "of the metrics that dashboards of other servers know",
    ),
    Flag("--decode-log-interval", "sched.decode_log_interval", "steps between status lines", INT),
)
