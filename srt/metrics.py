"""Prometheus metrics: what each number is called outside, and the histograms of requests.

Two sources. `RequestMetrics` is told by the frontend what happened to requests. The scheduler's
counters and gauges are read from its state when somebody scrapes, by `render`: a gauge therefore
falls when the last request is gone. Names known to dashboards carry the prefix `sglang:`, or the
one chosen; every number of the scheduler that has none appears as `treadle:<its plain name>`. Both
lists are in `metric_names.py`. Each object has its own registry; nothing is registered globally.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .metric_names import (
    KNOWN,
    EngineFacts,
    derived_counters,
    derived_gauges,
    outside_name,
    split_histograms,
    split_labels,
)
from .token_tally import TokenTally

ENGINE_TYPE = "unified"
COMMON = ("model_name", "engine_type")
RANKS = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}

# Seconds. TTFT from a cached chat turn to a long prompt on a CPU; ITL from a GPU's to a CPU's.
TTFT_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100),
    *(200, 400),
)
ITL_BUCKETS = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 8),
)
E2E_BUCKETS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1800)
QUEUE_BUCKETS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
TOKEN_BUCKETS = tuple(4**i for i in range(1, 11))  # 4 .. 1 Mi tokens


class TokenCounts(Protocol):
    @property
    def prompt_tokens(self) -> int: ...

    @property
    def completion_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def replayed_tokens(self) -> int: ...


class RequestMetrics:
    """Counts and times of requests as clients feel them. All durations are seconds."""

    def __init__(self, model_name: str, prefix: str = KNOWN) -> None:
        self.prefix = prefix
        self.registry = CollectorRegistry()
        self._common = {"model_name": model_name, "engine_type": ENGINE_TYPE}
        self._requests = self._counter("num_requests", "HTTP prompts accepted", "is_streaming")
        self._prompt = self._counter("prompt_tokens", "prompt tokens", "is_streaming")
        generated = self._counter("generation_tokens", "tokens generated", "is_streaming")
        self._generated = self._by_streaming(generated)
        self._cached = self._counter("cached_tokens", "prompt tokens from cache", "cache_source")
        aborted = self._counter("num_aborted_requests", "requests that did not end by rule")
        self._aborted = aborted.labels(**self._common)
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "to the first token", TTFT_BUCKETS, "is_streaming"
        )
        self._itl = self._tally("inter_token_latency_seconds", "between tokens", ITL_BUCKETS)
        self._e2e = self._histogram("e2e_request_latency_seconds", "whole request", E2E_BUCKETS)
        self._queue = self._histogram("queue_time_seconds", "arrival to admission", QUEUE_BUCKETS)
        self._prompt_sizes = self._histogram("prompt_tokens_histogram", "sizes", TOKEN_BUCKETS)
        self._output_sizes = self._histogram("generation_tokens_histogram", "sizes", TOKEN_BUCKETS)
        self._ttft_by_hit = Histogram(
            "treadle:time_to_first_token_seconds",
            "to the first token, with and without a prefix hit",
            (*COMMON, "hit"),
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )
        self._hit_sizes = Histogram(
            "treadle:hit_tokens",
            "prompt tokens from cache, by prompt",
            COMMON,
            buckets=(0, *TOKEN_BUCKETS),
            registry=self.registry,
        )
        self._replayed = Counter(
            "treadle:swa_replayed_tokens",
            "tokens recomputed to refill windows",
            (*COMMON, "part"),
            registry=self.registry,
        ).labels(**self._common, part="encoder")

    def arrived(self, num_prompts: int, *, is_streaming: bool) -> None:
        self._requests.labels(**self._common, is_streaming=_spell(is_streaming)).inc(num_prompts)

    def prompt(self, usage: TokenCounts, *, is_streaming: bool) -> None:
        """Once per prompt, when its first choice was admitted."""
        label = _spell(is_streaming)
        self._prompt.labels(**self._common, is_streaming=label).inc(usage.prompt_tokens)
        self._cached.labels(**self._common, cache_source="device").inc(usage.cached_tokens)
        self._replayed.inc(usage.replayed_tokens)
        self._prompt_sizes.labels(**self._common).observe(usage.prompt_tokens)
        self._hit_sizes.labels(**self._common).observe(usage.cached_tokens)

    def first_token(
        self, ttft_s: float, queue_s: float, *, is_streaming: bool, is_hit: bool
    ) -> None:
        self._ttft.labels(**self._common, is_streaming=_spell(is_streaming)).observe(ttft_s)
        self._ttft_by_hit.labels(**self._common, hit=str(int(is_hit))).observe(ttft_s)
        self._queue.labels(**self._common).observe(queue_s)

    def next_tokens(self, count: int, gap_s: float) -> None:
        """`count` tokens came together, `gap_s` after the one before them."""
        self._itl.add(gap_s / count, count)

    def generated(self, count: int, *, is_streaming: bool) -> None:
        self._generated[is_streaming].inc(count)

    def finished(self, usage: TokenCounts, e2e_s: float) -> None:
        self._e2e.labels(**self._common).observe(e2e_s)
        self._output_sizes.labels(**self._common).observe(usage.completion_tokens)

    def aborted(self) -> None:
        self._aborted.inc()

    def render(
        self, counters: Mapping[str, float], gauges: Mapping[str, float], facts: EngineFacts
    ) -> bytes:
        """Prometheus text of everything, with the scheduler's numbers as given."""
        buckets, counters = split_histograms(counters)
        numbers = self._numbers(counters, gauges, facts)
        labels = {**self._common, **RANKS}
        scrape = _Scrape(labels, *numbers, self._named(_outside(buckets)))
        return generate_latest(self.registry) + generate_latest(_registry_of(scrape))

    def samples(
        self, counters: Mapping[str, float], gauges: Mapping[str, float], facts: EngineFacts
    ) -> dict[str, float]:
        """The scheduler's numbers under the names that `render` gives them, such as
        `treadle:evicted_pages_total{kind=leaf}`, without the labels that all have, and without
        histograms."""
        _, counters = split_histograms(counters)
        found, more = self._numbers(counters, gauges, facts)
        totals = {}
        for key, value in found.items():
            name, brace, labels = key.partition("{")
            totals[name.removesuffix("_total") + "_total" + brace + labels] = value
        return totals | more

    def _numbers(
        self, counters: Mapping[str, float], gauges: Mapping[str, float], facts: EngineFacts
    ) -> tuple[dict[str, float], dict[str, float]]:
        """(counters, gauges) under their outside names, with what follows from them."""
        more = derived_counters(counters, facts) if counters else {}
        return (
            self._named({**_outside(counters), **more}),
            self._named({**_outside(gauges), **derived_gauges(counters, gauges, facts)}),
        )

    def _named(self, values: Mapping[str, float]) -> dict[str, float]:
        """With the prefix that was chosen for known names."""
        return {
            self.prefix + name.removeprefix(KNOWN) if name.startswith(KNOWN) else name: value
            for name, value in values.items()
        }

    def _by_streaming(self, counter: Counter) -> dict[bool, Counter]:
        """Looked up once: a look-up for each token costs more than its count."""
        return {
            flag: counter.labels(**self._common, is_streaming=_spell(flag))
            for flag in (False, True)
        }

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(self.prefix + name, text, (*COMMON, *labels), registry=self.registry)

    def _tally(self, name: str, text: str, bounds: tuple[float, ...]) -> TokenTally:
        tally = TokenTally(self.prefix + name, text, self._common, bounds)
        self.registry.register(tally)
        return tally

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        names = (*COMMON, *labels)
        return Histogram(self.prefix + name, text, names, buckets=buckets, registry=self.registry)


class HttpMetrics:
    """Requests and responses by route. `endpoint` is a route's pattern, never a raw path."""

    def __init__(self, registry: CollectorRegistry, prefix: str = KNOWN) -> None:
        labels = ("endpoint", "method")
        self._requests = Counter(
            prefix + "http_requests", "HTTP requests", labels, registry=registry
        )
        self._responses = Counter(
            prefix + "http_responses",
            "HTTP responses",
            (*labels, "status_code"),
            registry=registry,
        )
        self._active = Gauge(
            prefix + "http_requests_active", "HTTP requests now", labels, registry=registry
        )

    def started(self, endpoint: str, method: str) -> None:
        self._requests.labels(endpoint, method).inc()
        self._active.labels(endpoint, method).inc()

    def ended(self, endpoint: str, method: str, status: int | None) -> None:
        """`status` is None when the client was gone before a response began."""
        self._active.labels(endpoint, method).dec()
        if status is not None:
            self._responses.labels(endpoint, method, str(status)).inc()


class _Scrape(Collector):
    """One reading of the scheduler's numbers."""

    def __init__(
        self,
        labels: Mapping[str, str],
        counters: Mapping[str, float],
        gauges: Mapping[str, float],
        buckets: Mapping[str, float],
    ) -> None:
        self._labels = labels
        self._counters = counters
        self._gauges = gauges
        self._buckets = buckets

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._counters, CounterMetricFamily)
        yield from self._families(self._gauges, GaugeMetricFamily)
        yield from self._histograms()

    def _histograms(self) -> Iterator[Metric]:
        families: dict[str, HistogramMetricFamily] = {}
        for key, total in self._buckets.items():
            name, own = split_labels(key)
            if not name.endswith("_sum"):
                continue
            name = name.removesuffix("_sum")
            labels = {**self._labels, **own}
            counts = list(self._bounds(name, own))
            if name not in families:
                text = "read at the scrape"
                families[name] = HistogramMetricFamily(name, text, labels=tuple(labels))
            families[name].add_metric(tuple(labels.values()), counts, total)
        yield from families.values()

    def _bounds(self, name: str, own: Mapping[str, str]) -> Iterator[tuple[str, float]]:
        """Counts of one series, in the order of their bounds."""
        for key, count in self._buckets.items():
            found, labels = split_labels(key)
            if found == f"{name}_bucket" and {k: labels[k] for k in labels if k != "le"} == own:
                yield labels["le"], count

    def _families(
        self, values: Mapping[str, float], make: type[CounterMetricFamily | GaugeMetricFamily]
    ) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for key, value in values.items():
            name, own = split_labels(key)
            labels = {**self._labels, **own}
            if name not in families:
                families[name] = make(name, "read at the scrape", labels=tuple(labels))
            families[name].add_metric(tuple(labels.values()), value)
        yield from families.values()


def _outside(values: Mapping[str, float]) -> dict[str, float]:
    """The same numbers under their outside names; labels stay."""
    renamed = {}
    for key, value in values.items():
        plain, brace, labels = key.partition("{")
        renamed[outside_name(plain) + brace + labels] = value
    return renamed


def _registry_of(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def _spell(flag: bool) -> str:
    return "True" if flag else "False"
