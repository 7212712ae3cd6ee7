"""Several replicas and a router in one command: what each is told, and who is started again."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import orjson
import pytest

from treadle import fleet_launcher
from treadle.command_line import parse_command_line
from treadle.fleet_launcher import (
    FleetLauncher,
    Member,
    free_port,
    is_ready,
    replica_config,
    router_settings,
    split_router_flags,
    start_child,
)
from treadle.launch_router import parse_router_flags
from treadle.launch_server import ROUTER_SWITCHES
from treadle.srt.config import ServerConfig
from treadle.srt.errors import ConfigError, WorkerLost


def config_of(*argv: str) -> ServerConfig:
    return parse_command_line(argv, {}, program="treadle").config


def test_flags_of_the_router_are_taken_out_with_their_values():
    argv = ["--port", "1", "--router-policy", "random", "--router-queue-size=3"]
    argv += ["--router-disable-retries", "--dp-size", "2"]
    own, routers = split_router_flags(argv, ROUTER_SWITCHES)
    assert own == ["--port", "1", "--dp-size", "2"]
    assert routers == ["--policy", "random", "--queue-size=3", "--disable-retries"]


def test_the_router_has_the_address_and_the_keys_and_replicas_are_behind_it(tmp_path):
    config = config_of("--host", "0.0.0.0", "--port", "8000", "--api-key", "k", "--dp-size", "2",
                       "--ssl-keyfile", "a", "--ssl-certfile", "b")  # fmt: skip
    settings = router_settings(config, ["http://127.0.0.1:1", "http://127.0.0.1:2"])
    path = tmp_path / "flags"
    path.write_bytes(orjson.dumps(settings))
    router = parse_router_flags(["--config", str(path), "--policy", "random"]).config
    assert (router.net.host, router.net.port, router.net.api_key) == ("0.0.0.0", 8000, "k")
    assert router.net.ssl_keyfile == "a" and router.policy.name == "random"
    assert router.workers.urls == "http://127.0.0.1:1 http://127.0.0.1:2"
    replica = replica_config(config, 7).net
    assert (replica.host, replica.port, replica.ssl_keyfile) == ("127.0.0.1", 7, "")
    assert replica.api_key == "k"  # the client's key passes through


IDLE = "import signal; signal.pause()"


def python(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> FleetLauncher:
    monkeypatch.setattr(fleet_launcher, "start_child", lambda words, text: python(IDLE))
    return FleetLauncher(replace(config_of("--dp-size", "2")), [])


def test_too_many_replicas_are_refused_before_any_is_started():
    with pytest.raises(ConfigError, match="--dp-size 65: must be from 1 to 64"):
        FleetLauncher(config_of("--dp-size", "65"), [])


@pytest.mark.parametrize("words", [["--config", "f"], ["--config=f"]])
def test_a_file_that_would_replace_what_the_router_is_told_is_refused(words: list[str]):
    with pytest.raises(ConfigError, match="--router-config: with --dp-size 2"):
        FleetLauncher(config_of("--dp-size", "2"), words)


def test_a_replica_that_never_served_ends_the_launch(launcher: FleetLauncher):
    member = Member(0, 1, python("exit(3)"))
    member.process.wait()
    with pytest.raises(WorkerLost, match="replica 0 ended with status 3"):
        launcher._look_after(member, time.monotonic())


def test_a_replica_that_dies_is_started_again_later_each_time(launcher: FleetLauncher):
    member = Member(0, 1, python("exit(1)"), has_served=True, is_serving=True)
    waits, now = [], 100.0
    for _ in range(3):
        member.process.wait()
        launcher._look_after(member, now)
        assert member.restart_at is not None
        waits.append(member.restart_at - now)
        launcher._look_after(member, now + waits[-1] - 0.1)
        assert member.restart_at is not None
        now += waits[-1]
        launcher._look_after(member, now)
        assert member.restart_at is None and member.process.poll() is None
        member.process.kill()
    member.process.wait()
    assert waits == [1.0, 2.0, 4.0]


def test_a_child_gets_its_input_and_its_port_is_free():
    child = start_child(["this"], b"nothing reads it")
    assert child.wait() == 0
    assert not is_ready(free_port())
