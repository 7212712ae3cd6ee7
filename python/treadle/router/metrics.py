"""Prometheus metrics of the router: names that dashboards of the SGLang gateway know, and ours.

What is counted per request is looked up once per label. Gauges of replicas are read from state when
somebody scrapes. Sessions and addresses of clients are never labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .affinity import Decision, Policy
from .inflight import Inflight
from .lifecycle import Breaker
from .outcomes import Again, Break
from .replicas import Replicas
from .reply import Reply

T = TypeVar("T", Counter, Histogram)
KIND = {"router_type": "http", "backend_type": "regular", "connection_mode": "http"}
POOL = {"worker_type": "regular", "connection_mode": "http", "model": "any"}
BREAKER_NUMBERS = {Breaker.CLOSED: 0, Breaker.OPEN: 1, Breaker.HALF_OPEN: 2}
TTFB_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
OTHER_PATH = "other"  # paths are the client's words; only these are labels
KNOWN_PATHS = frozenset(
    {
        "/generate",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
    }
)


class Labelled(Generic[T]):
    """A metric's children by their labels: looking one up in the metric takes a lock each time."""

    def __init__(self, metric: T) -> None:
        self._metric: T = metric
        self._children: dict[tuple[str, ...], T] = {}

    def __call__(self, *labels: str) -> T:
        child = self._children.get(labels)
        if child is None:
            child = self._metric.labels(*labels) if labels else self._metric
            self._children[labels] = child
        return child


class RouterMetrics:
    def __init__(self, policy: str) -> None:
        self.registry = CollectorRegistry()
        self._policy = policy
        self._requests = self._counter("smg_http_requests", "HTTP requests", "method", "path")
        self._responses = self._counter(
            "smg_http_responses", "HTTP responses", "status_code", "error_code"
        )
        self._seconds = self._histogram(
            "smg_http_request_duration_seconds", "whole requests", "method", "path"
        )
        self._active = Gauge("smg_http_connections_active", "requests now", registry=self.registry)
        self._routed = self._counter(
            "smg_router_requests", "requests", *KIND, "model", "endpoint", "streaming"
        )
        self._errors = self._counter(
            "smg_router_request_errors", "requests that failed", *KIND, "error_type"
        )
        self._upstream = self._counter(
            "smg_router_upstream_responses", "answers of workers", "worker", "status_code"
        )
        self._ttfb = self._histogram("smg_router_ttft_seconds", "to the first byte of a body")()
        self._routed_s = self._histogram("smg_router_request_duration_seconds", "whole", *KIND)
        self._limited = self._counter("smg_http_rate_limit", "asked of the limit", "result")
        self._exhausted = self._counter("smg_worker_retries_exhausted", "no more", "worker")
        self._back_off = self._histogram("smg_worker_retry_backoff_seconds", "waited")()
        self._selected = self._counter("smg_worker_selection", "choices", *POOL, "policy", "worker")
        self._broken = self._counter(
            "smg_worker_errors", "broken exchanges", "worker", "error_type"
        )
        self._retries = self._counter("smg_worker_retries", "second attempts", "worker", "reason")
        self._probes = self._counter("smg_worker_health_checks", "probes", "worker", "result")
        self._decisions = self._counter("treadle:router_decisions", "choices", "decision")
        self._gone = self._counter("treadle:router_clients_gone", "clients that left early")()
        self._streams = self._counter("treadle:router_stream_broken", "answers that broke off")()
        self._lost = self._counter("treadle:router_sessions_lost", "server-side sessions lost")()

    def started(self, method: str, path: str) -> None:
        self._requests(known_method(method), known(path)).inc()
        self._active.inc()

    def ended(self, scope: tuple[str, str], reply: Reply, seconds: float) -> None:
        """`scope`: method and path."""
        method, path = known_method(scope[0]), known(scope[1])
        self._active.dec()
        self._seconds(method, path).observe(seconds)
        self._routed_s(*KIND.values()).observe(seconds)
        streaming = "true" if reply.is_stream else "false"
        self._routed(*KIND.values(), "any", path, streaming).inc()
        if reply.status is not None:
            error = str(reply.status) if reply.status >= 400 else "none"
            self._responses(str(reply.status), error).inc()

    def limited(self, *, is_allowed: bool) -> None:
        self._limited("allowed" if is_allowed else "rejected").inc()

    def exhausted(self, replica: str) -> None:
        """A second attempt would have been right, and there was none."""
        self._exhausted(replica).inc()

    def waited(self, seconds: float) -> None:
        self._back_off.observe(seconds)

    def chosen(self, replica: str, decision: Decision) -> None:
        self._decisions(decision.value).inc()
        self._selected(*POOL.values(), self._policy, replica).inc()

    def answered(self, replica: str, status: int) -> None:
        self._upstream(replica, str(status)).inc()

    def first_byte(self, seconds: float) -> None:
        self._ttfb.observe(seconds)

    def broke(self, replica: str, kind: Break) -> None:
        self._broken(replica, kind.value).inc()

    def retried(self, replica: str, reason: Again) -> None:
        self._retries(replica, reason.value).inc()

    def probed(self, replica: str, result: str) -> None:
        self._probes(replica, result).inc()

    def client_gone(self) -> None:
        self._gone.inc()

    def stream_broken(self) -> None:
        self._streams.inc()
        self._errors(*KIND.values(), "stream_broken").inc()

    def sessions_lost(self, count: int) -> None:
        self._lost.inc(count)

    def render(self, replicas: Replicas, inflight: Inflight, policy: Policy) -> bytes:
        gauges = CollectorRegistry(auto_describe=False)
        gauges.register(_State(replicas, inflight, policy))
        return generate_latest(self.registry) + generate_latest(gauges)

    def _counter(self, name: str, text: str, *labels: str) -> Labelled[Counter]:
        return Labelled(Counter(name, text, labels, registry=self.registry))

    def _histogram(self, name: str, text: str, *labels: str) -> Labelled[Histogram]:
        buckets = TTFB_BUCKETS
        return Labelled(Histogram(name, text, labels, buckets=buckets, registry=self.registry))


class _State(Collector):
    def __init__(self, replicas: Replicas, inflight: Inflight, policy: Policy) -> None:
        self._replicas = replicas
        self._inflight = inflight
        self._policy = policy

    def collect(self) -> Iterator[Metric]:
        ledger, fleet = self._replicas.ledger, self._replicas.fleet
        rows = list(self._replicas)
        yield _gauge("smg_worker_pool_size", (POOL, len(rows)))
        yield _gauge(
            "smg_worker_requests_active",
            *(({"worker": r.name}, ledger.num_live(r.name)) for r in rows),
        )
        yield _gauge(
            "smg_worker_health",
            *(({"worker": r.name}, float(fleet.is_eligible(r.name))) for r in rows),
        )
        yield _gauge(
            "smg_worker_cb_state",
            *(({"worker": r.name}, BREAKER_NUMBERS[r.life.breaker]) for r in rows),
        )
        opened = CounterMetricFamily("smg_worker_cb_transitions", "openings", labels=["worker"])
        for r in rows:
            opened.add_metric([r.name], r.life.num_openings)
        yield opened
        yield _gauge("smg_manual_policy_cache_entries", ({}, self._policy.num_entries))
        yield _gauge("treadle:router_requests", ({}, len(self._inflight)))
        yield _gauge(
            "treadle:router_load_tokens", *(({"replica": r.name}, fleet.load(r.name)) for r in rows)
        )
        yield _gauge(
            "treadle:router_replicas",
            *(({"state": s.value}, count) for s, count in self._replicas.counts().items()),
        )


def known_method(method: str) -> str:
    return method if method in ("GET", "POST", "PUT", "DELETE") else OTHER_PATH


def known(path: str) -> str:
    return path if path in KNOWN_PATHS else OTHER_PATH


def _gauge(name: str, *samples: tuple[dict[str, str], float]) -> GaugeMetricFamily:
    labels = list(samples[0][0]) if samples else []
    family = GaugeMetricFamily(name, "read at the scrape", labels=labels)
    for own, value in samples:
        family.add_metric(list(own.values()), value)
    return family
