"""Values that depend on others, and bad ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.router.config import PolicySection, RouterConfig
from treadle.router.keys import DEFAULT_SOURCES
from treadle.srt.errors import ConfigError


def test_defaults_are_those_of_the_design():
    config = RouterConfig()
    assert config.policy.name == "session"
    assert config.net.host == "0.0.0.0" and config.net.port == 30000
    life, affinity = config.life_rules(), config.policy_rules().affinity
    assert (life.failure_threshold, life.ramp_s, life.min_dwell_s) == (3, 30.0, 60.0)  # A14, A16
    assert life.drain_timeout_s == 300.0  # A13
    assert (affinity.ttl_s, affinity.capacity, affinity.max_spills) == (600.0, 1_000_000, 2)  # A7
    assert (config.policy.load_eps, config.limits.idle_timeout_s) == (0.25, 600.0)  # A6, A19
    assert config.key_rules().sources == DEFAULT_SOURCES  # A1


def test_key_sources_are_checked():
    policy = PolicySection(key_sources="header user", key_headers="X-Mine")
    config = replace(RouterConfig(), policy=policy)
    assert config.key_rules().headers == ("x-mine",)
    config = replace(config, policy=replace(policy, key_sources="cookie"))
    with pytest.raises(ConfigError, match="--session-key-sources cookie"):
        config.key_rules()
