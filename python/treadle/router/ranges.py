"""Which numbers a router's configuration may hold. What depends on several is in `settle`."""

from __future__ import annotations

from collections.abc import Sequence

from ..srt.errors import ConfigError
from .config import RouterConfig

Range = tuple[str, float, float, float]  # flag, value, lowest, highest
UNLIMITED = float(1 << 62)
LARGEST_PORT = 65535
SHORTEST_S = 0.01  # of waits that come again and again


def check_ranges(config: RouterConfig) -> None:
    """Raises ConfigError naming flag, value and limit."""
    for flag, value, low, high in (*_serving(config), *_choice(config), *_health(config)):
        if not low <= value <= high:
            limit = f"at least {low:g}" if high == UNLIMITED else f"from {low:g} to {high:g}"
            raise ConfigError(f"{flag} {value:.15g}: must be {limit}")


def _serving(config: RouterConfig) -> Sequence[Range]:
    net, limits, retry = config.net, config.limits, config.retry
    return (
        ("--port", net.port, 0, LARGEST_PORT),
        ("--prometheus-port", config.watch.prometheus_port, -1, LARGEST_PORT),
        ("--timeout-keep-alive", net.keep_alive_s, 1, UNLIMITED),
        ("--max-payload-size", net.max_body_bytes, 1024, UNLIMITED),
        ("--retry-initial-backoff-ms", retry.back_off_ms, 0, UNLIMITED),
        ("--retry-budget", retry.budget, 0, 1),
        ("--queue-size", limits.queue_size, 0, UNLIMITED),
        ("--queue-timeout-secs", limits.queue_timeout_s, SHORTEST_S, UNLIMITED),
        ("--request-timeout-secs", limits.request_timeout_s, SHORTEST_S, UNLIMITED),
        ("--idle-timeout-secs", limits.idle_timeout_s, SHORTEST_S, UNLIMITED),
        ("--connect-timeout-secs", limits.connect_timeout_s, SHORTEST_S, UNLIMITED),
        ("--shutdown-grace-period-secs", limits.grace_s, 0, UNLIMITED),
    )


def _choice(config: RouterConfig) -> Sequence[Range]:
    policy = config.policy
    return (
        ("--session-ttl-secs", policy.session_ttl_s, 0, UNLIMITED),
        ("--max-sessions", policy.session_capacity, 1, UNLIMITED),
        ("--load-eps", policy.load_eps, 0, UNLIMITED),
        ("--load-gap-tokens", policy.load_gap, 0, UNLIMITED),
        ("--max-spills", policy.max_spills, 1, UNLIMITED),
        ("--cache-threshold", policy.cache_threshold, 0, 1),
        ("--balance-abs-threshold", policy.balance_abs, 0, UNLIMITED),
        ("--balance-rel-threshold", policy.balance_rel, 0, UNLIMITED),
        ("--max-tree-size", policy.tree_bytes, 0, UNLIMITED),
        ("--max-idle-secs", policy.max_idle_s, 0, UNLIMITED),
    )


def _health(config: RouterConfig) -> Sequence[Range]:
    workers, health, breaker, limits = config.workers, config.health, config.breaker, config.limits
    return (
        ("--discovery-interval-secs", workers.discovery_s, SHORTEST_S, UNLIMITED),
        ("--worker-startup-timeout-secs", workers.startup_timeout_s, 0, UNLIMITED),
        ("--health-check-interval-secs", health.interval_s, SHORTEST_S, UNLIMITED),
        ("--health-check-timeout-secs", health.timeout_s, SHORTEST_S, UNLIMITED),
        ("--load-monitor-interval", health.load_interval_s, SHORTEST_S, UNLIMITED),
        ("--cb-failure-threshold", breaker.failure_threshold, 1, UNLIMITED),
        ("--cb-success-threshold", breaker.success_threshold, 1, UNLIMITED),
        ("--cb-timeout-duration-secs", breaker.timeout_s, 0, UNLIMITED),
        ("--cb-window-duration-secs", breaker.window_s, 0, UNLIMITED),
        ("--ramp-secs", limits.ramp_s, 0, UNLIMITED),
        ("--min-dwell-secs", limits.min_dwell_s, 0, UNLIMITED),
        ("--drain-timeout-secs", limits.drain_timeout_s, 0, UNLIMITED),
    )
