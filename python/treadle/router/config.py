"""RouterConfig: nested frozen sections, each default once, here. Flags: rows of `flags/router.py`.

Where a default differs from the SGLang gateway's, the comment says why. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..srt.config import NetSection
from ..srt.errors import ConfigError
from .affinity import AffinityRules
from .keys import DEFAULT_SOURCES, SESSION_HEADERS, SOURCES, KeyRules
from .ledger import LoadRules
from .lifecycle import LifeRules
from .policies import PolicyRules


@dataclass(frozen=True, slots=True)
class WorkersSection:
    urls: str = ""  # separated by spaces
    file: str = ""  # a list of addresses that is read again when it changes
    dns: str = ""  # http://name:port whose name stands for several addresses
    discovery_s: float = 5.0  # between looks at the file or the name
    api_key: str = ""  # for what the router itself asks; "" : the router's own key
    startup_timeout_s: float = 1800.0  # without a ready worker after it, the router gives up
    ssl_verify: bool = True


@dataclass(frozen=True, slots=True)
class PolicySection:
    name: str = "session"  # theirs: cache_aware; ours falls back to less when there is no session
    keyless: str = "power_of_two"
    cache_threshold: float = 0.3
    balance_abs: int = 64
    balance_rel: float = 1.5
    tree_bytes: int = 67108864
    assignment: str = "random"
    max_idle_s: float = 14400.0
    session_ttl_s: float = 600.0
    session_capacity: int = 1_000_000
    load_eps: float = 0.25
    load_gap: int = 2048  # tokens: a chunk of prompt
    max_spills: int = 2
    key_sources: str = " ".join(DEFAULT_SOURCES)
    key_headers: str = " ".join(SESSION_HEADERS)
    cache_isolation: str = "none"  # none | per-key


@dataclass(frozen=True, slots=True)
class RetrySection:
    is_on: bool = True
    max_retries: int = 1  # theirs: 5; more than one multiplies work that nobody can stop
    back_off_ms: int = 50
    budget: float = 0.1  # retries per request


@dataclass(frozen=True, slots=True)
class BreakerSection:
    is_on: bool = True
    failure_threshold: int = 3  # theirs: 10
    success_threshold: int = 3
    timeout_s: float = 60.0  # the longest back-off
    window_s: float = 120.0


@dataclass(frozen=True, slots=True)
class HealthSection:
    timeout_s: float = 5.0
    interval_s: float = 10.0  # theirs: 60; of ready workers, others are asked every second
    endpoint: str = "/ready"  # theirs: /health, which may generate; without it that is asked
    load_interval_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LimitsSection:
    max_concurrent: int = -1
    queue_size: int = 100
    queue_timeout_s: float = 60.0
    rate_limit: float = -1.0  # requests per second
    request_timeout_s: float = 1800.0  # to the first byte
    idle_timeout_s: float = 600.0  # between two bytes
    connect_timeout_s: float = 5.0
    drain_timeout_s: float = 300.0
    grace_s: float = 180.0  # of the router itself at its end
    ramp_s: float = 30.0
    min_dwell_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WatchSection:
    prometheus_port: int = 29000  # -1: only /metrics of the router's own port
    prometheus_host: str = "0.0.0.0"
    admin_api_key: str = ""


@dataclass(frozen=True, slots=True)
class RouterConfig:
    net: NetSection = field(
        default_factory=lambda: NetSection(host="0.0.0.0", max_body_bytes=512 << 20)
    )
    workers: WorkersSection = field(default_factory=WorkersSection)
    policy: PolicySection = field(default_factory=PolicySection)
    retry: RetrySection = field(default_factory=RetrySection)
    breaker: BreakerSection = field(default_factory=BreakerSection)
    health: HealthSection = field(default_factory=HealthSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    watch: WatchSection = field(default_factory=WatchSection)

    def policy_rules(self) -> PolicyRules:
        own = self.policy
        return PolicyRules(
            name=own.name,
            keyless=own.keyless,
            affinity=AffinityRules(own.session_ttl_s, own.session_capacity, own.max_spills),
            cache_threshold=own.cache_threshold,
            balance_abs=own.balance_abs,
            balance_rel=own.balance_rel,
            tree_bytes=own.tree_bytes,
            assignment=own.assignment,
            max_idle_s=own.max_idle_s,
        )

    def life_rules(self) -> LifeRules:
        return LifeRules(
            failure_threshold=self.breaker.failure_threshold,
            success_threshold=self.breaker.success_threshold,
            failure_window_s=self.breaker.window_s,
            max_back_off_s=self.breaker.timeout_s,
            has_breaker=self.breaker.is_on,
            ramp_s=self.limits.ramp_s,
            min_dwell_s=self.limits.min_dwell_s,
            drain_timeout_s=self.limits.drain_timeout_s,
        )

    def load_rules(self) -> LoadRules:
        return LoadRules()

    def key_rules(self) -> KeyRules:
        """Raises ConfigError."""
        sources = tuple(self.policy.key_sources.split())
        for source in sources:
            if source not in SOURCES:
                raise ConfigError(
                    f"--session-key-sources {source}: must be of {', '.join(SOURCES)}"
                )
        headers = tuple(name.lower() for name in self.policy.key_headers.split())
        return KeyRules(sources, headers)
