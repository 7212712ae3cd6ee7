"""Numbers out of range are refused at the start."""

from __future__ import annotations

import pytest

from test.treadle.router.harness import config_of
from treadle.router.config import RouterConfig
from treadle.router.ranges import check_ranges
from treadle.srt.errors import ConfigError

URLS = ["http://a:1"]


def test_defaults_are_in_range():
    check_ranges(RouterConfig())


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("net", "port", 70000, "--port 70000: must be from 0 to 65535"),
        ("limits", "queue_size", -1, "--queue-size -1: must be at least 0"),
        ("limits", "request_timeout_s", 0.0, "--request-timeout-secs 0: must be at least 0.01"),
        ("policy", "max_spills", 0, "--max-spills 0: must be at least 1"),
        ("policy", "cache_threshold", 1.5, "--cache-threshold 1.5: must be from 0 to 1"),
        ("health", "interval_s", 0.0, "--health-check-interval-secs 0: must be at least 0.01"),
        ("breaker", "failure_threshold", 0, "--cb-failure-threshold 0: must be at least 1"),
    ],
)
def test_a_number_out_of_range_is_named(section: str, name: str, value: float, message: str):
    with pytest.raises(ConfigError, match=message):
        config_of(URLS, **{section: {name: value}})
