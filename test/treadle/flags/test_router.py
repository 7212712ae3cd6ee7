"""The router's flags, row by row: documented, unique, and doing what they say."""

from __future__ import annotations

import dataclasses

import pytest

from treadle.flags.router import POLICIES, ROUTER_FOREIGN, ROUTER_SECTIONS
from treadle.flags.row import Flag, Kind, Status
from treadle.launch_router import parse_router_flags
from treadle.router.config import RouterConfig
from treadle.router.policies import NAMES
from treadle.srt.errors import ConfigError

OWN = tuple(flag for _, flags in ROUTER_SECTIONS for flag in flags)
ALL = (*OWN, *ROUTER_FOREIGN)
TEXT_OF = {Kind.TEXT: "abc", Kind.INT: "7", Kind.SIZE: "7k", Kind.FLOAT: "0.5", Kind.WORDS: "a"}
VALUE_OF = {Kind.TEXT: "abc", Kind.INT: 7, Kind.SIZE: 7000, Kind.FLOAT: 0.5, Kind.WORDS: "a"}
UNFLAGGED = {"net"}  # a section of the server, of which the router has but a few flags
# What `surface.md` 5.1 asks of a first release.
P0 = """
--host --port --worker-urls --policy --cache-threshold --balance-abs-threshold
--balance-rel-threshold --eviction-interval --eviction-interval-secs --max-tree-size
--assignment-mode --max-idle-secs --worker-startup-timeout-secs --max-concurrent-requests
--queue-size --queue-timeout-secs --rate-limit-tokens-per-second --request-timeout-secs
--shutdown-grace-period-secs --max-payload-size --retry-max-retries --retry-initial-backoff-ms
--retry-max-backoff-ms --retry-backoff-multiplier --retry-jitter-factor --disable-retries
--cb-failure-threshold --cb-success-threshold --cb-timeout-duration-secs --cb-window-duration-secs
--disable-circuit-breaker --health-failure-threshold --health-success-threshold
--health-check-timeout-secs --health-check-interval-secs --health-check-endpoint --api-key
--prometheus-port --prometheus-host --log-level
--block-size --prefix-token-count --prefix-hash-load-factor --dp-aware --routing-key-override
--pd-disaggregation --prefill --decode --prefill-policy --decode-policy --load-monitor-interval
--model-path --tokenizer-path --enable-igw --service-discovery --selector --request-id-headers
--log-dir --log-json --enable-trace
"""


def field(config: RouterConfig, path: str) -> object:
    section, name = path.split(".")
    return getattr(getattr(config, section), name)


def arguments(flag: Flag, spelling: str) -> list[str]:
    if flag.kind is Kind.SWITCH:
        return [spelling]
    return [spelling, flag.choices[-1] if flag.choices else TEXT_OF[flag.kind]]


@pytest.mark.parametrize("flag", OWN, ids=lambda f: f.spelling)
def test_every_spelling_sets_its_field(flag: Flag):
    for spelling in flag.spellings:
        config = parse_router_flags(arguments(flag, spelling)).config
        value = flag.choices[-1] if flag.choices else VALUE_OF.get(flag.kind, flag.const)
        assert field(config, flag.field) == value


@pytest.mark.parametrize("flag", ROUTER_FOREIGN, ids=lambda f: f.spelling)
def test_flags_without_effect_say_so_and_others_are_refused(flag: Flag):
    assert flag.why
    if flag.status is Status.ACCEPTED:
        (notice,) = parse_router_flags(arguments(flag, flag.spelling)).notices
        assert flag.spelling in notice
    else:
        with pytest.raises(ConfigError, match=flag.spelling):
            parse_router_flags(arguments(flag, flag.spelling))


def test_every_field_has_a_flag():
    sections = (f.name for f in dataclasses.fields(RouterConfig) if f.name not in UNFLAGGED)
    fields = {
        f"{name}.{f.name}"
        for name in sections
        for f in dataclasses.fields(getattr(RouterConfig(), name))
    }
    assert fields == {flag.field for flag in OWN if flag.field.split(".")[0] not in UNFLAGGED}


def test_spellings_are_unique_and_documented():
    spellings = [s for flag in ALL for s in flag.spellings]
    assert len(spellings) == len(set(spellings))
    assert all(flag.help for flag in ALL)


@pytest.mark.parametrize("spelling", P0.split())
def test_flag_of_the_first_release_is_known(spelling: str):
    assert any(spelling in flag.spellings for flag in ALL)


def test_policies_are_those_that_there_are():
    assert set(POLICIES) == set(NAMES)
    assert parse_router_flags(["--policy", "session_aware"]).config.policy.name == "session"


def test_several_workers_are_given_after_one_flag():
    line = parse_router_flags(["--worker-urls", "http://a:1", "http://b:1", "--port", "3"])
    assert line.config.workers.urls == "http://a:1 http://b:1"
    assert line.config.net.port == 3
