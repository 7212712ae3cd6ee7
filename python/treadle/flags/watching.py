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
        "a line per request, without its text",
        SWITCH,
        ("--enable-log-requests",),
    ),
    Flag("--decode-log-interval", "sched.decode_log_interval", "steps between status lines", INT),
)
