"""`launch_server --dp-size N`: N replicas of this host behind one router, in one command.

    this process --+-- replica 0 .. N-1   on loopback ports of their own, plain HTTP
                   +-- router             on --host and --port, with TLS and the API keys

A replica that dies is started again, unless it never served: then its configuration is at fault and
all ends. A stop ends the router first, which lets running requests finish, then the replicas. No
child outlives this process.
"""

from __future__ import annotations

import ctypes
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import FrameType

import orjson

from .srt.config import MAX_REPLICAS, NetSection, ServerConfig
from .srt.errors import ConfigError, WorkerLost
from .srt.log import event, setup_logging

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
POLL_S = 0.2
RESTART_S = 1.0  # doubles with each death in a row
MAX_RESTART_S = 30.0
STOP_S = 15.0  # for a replica without requests to end
PR_SET_PDEATHSIG = 1
ROUTER = "treadle.launch_router"
REPLICA = "treadle.replica_child"


@dataclass(slots=True, eq=False)
class Member:
    """One replica. `deaths`: in a row, without having served between them."""

    index: int
    port: int
    process: subprocess.Popen[bytes]
    has_served: bool = False
    is_serving: bool = False
    deaths: int = 0
    restart_at: float | None = None


class FleetLauncher:
    def __init__(self, config: ServerConfig, router_flags: list[str]) -> None:
        """`router_flags`: more flags of the router, which win over those made from `config`.
        Raises ConfigError for too many replicas, before any is started.
        """
        size = config.parallel.dp_size
        if size > MAX_REPLICAS:
            raise ConfigError(f"--dp-size {size}: must be from 1 to {MAX_REPLICAS}")
        if any(flag.split("=")[0] == "--config" for flag in router_flags):
            raise ConfigError(
                f"--router-config: with --dp-size {size} the router gets its replicas and keys "
                "from this command; give each setting as a --router flag"
            )
        self._config = config
        self._router_flags = router_flags
        self._members: list[Member] = []
        self._router: subprocess.Popen[bytes] | None = None
        self._news = threading.Event()
        self._stops = 0

    def run(self) -> None:
        """Until a stop signal; main thread only. Raises WorkerLost."""
        setup_logging(self._config.net.log_level, "fleet")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signalled)
        try:
            for index in range(self._config.parallel.dp_size):
                port = free_port()
                self._members.append(Member(index, port, self._start(port)))
            urls = [f"http://{LOOPBACK}:{member.port}" for member in self._members]
            self._router = start_child(
                [ROUTER, "--config", "/dev/stdin", *self._router_flags],
                orjson.dumps(router_settings(self._config, urls)),
            )
            while not self._stops:
                self._turn()
            self._stop()
        finally:
            self._kill()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        self._news.set()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        return start_child([REPLICA], orjson.dumps(asdict(replica_config(self._config, port))))

    def _turn(self) -> None:
        self._news.wait(POLL_S)
        self._news.clear()
        assert self._router is not None
        if self._router.poll() is not None:
            raise WorkerLost(f"the router ended with exit status {self._router.returncode}")
        for member in self._members:
            self._look_after(member, time.monotonic())

    def _look_after(self, member: Member, now: float) -> None:
        """Raises WorkerLost for one that ended before it ever served."""
        if member.restart_at is not None:
            if now >= member.restart_at:
                member.process, member.restart_at = self._start(member.port), None
            return
        status = member.process.poll()
        if status is None:
            if not member.is_serving and is_ready(member.port):
                member.is_serving = member.has_served = True
                member.deaths = 0
                log.info(event("replica_serves", {"replica": member.index, "port": member.port}))
            return
        if not member.has_served:
            raise WorkerLost(f"replica {member.index} ended with status {status}, unserved")
        member.deaths += 1
        member.is_serving = False
        wait_s = min(MAX_RESTART_S, RESTART_S * 2 ** (member.deaths - 1))
        member.restart_at = now + wait_s
        fields = {"replica": member.index, "status": status, "restart_in_s": wait_s}
        log.warning(event("replica_died", fields))

    def _stop(self) -> None:
        """A second signal hurries the router, a third ends all at once."""
        log.info(event("stopping", {}))
        assert self._router is not None
        self._router.terminate()
        hurried = 1
        while self._router.poll() is None and self._stops < 3:
            if self._stops > hurried:
                hurried = self._stops
                self._router.terminate()
            self._news.wait(POLL_S)
            self._news.clear()
        for member in self._members:
            member.process.terminate()
        deadline = time.monotonic() + STOP_S
        for member in self._members:
            left = max(0.0, deadline - time.monotonic())
            try:
                member.process.wait(left if self._stops < 3 else 0.0)
            except subprocess.TimeoutExpired:
                member.process.terminate()  # its second signal ends the requests that still run

    def _kill(self) -> None:
        """Whatever still runs. Processes of a replica end with its launcher."""
        children = [member.process for member in self._members]
        for process in [*children, *([self._router] if self._router else [])]:
            if process.poll() is None:
                process.kill()
            process.wait()


def replica_config(config: ServerConfig, port: int) -> ServerConfig:
    """Of one replica: on loopback, behind the router, which has TLS."""
    net = replace(config.net, host=LOOPBACK, port=port, ssl_keyfile="", ssl_certfile="")
    return replace(config, net=net)


def router_settings(config: ServerConfig, urls: list[str]) -> Mapping[str, object]:
    """The router's flags as a file holds them, so that no key is on a command line."""
    net, api = config.net, config.api
    given: dict[str, object] = {
        "worker-urls": urls,
        "host": net.host,
        "port": net.port,
        "prometheus-port": -1,
        "log-level": net.log_level,
        "timeout-keep-alive": net.keep_alive_s,
        "shutdown-grace-period-secs": api.drain_s,
        "cache-isolation": api.cache_isolation,
    }
    named = {
        "api-key": net.api_key,
        "admin-api-key": api.admin_api_key,
        "ssl-keyfile": net.ssl_keyfile,
        "ssl-certfile": net.ssl_certfile,
    }
    limit = {"max-payload-size": net.max_body_bytes}
    changed = limit if net.max_body_bytes != NetSection().max_body_bytes else {}
    return given | {name: value for name, value in named.items() if value} | changed


def start_child(module_and_flags: list[str], standard_input: bytes) -> subprocess.Popen[bytes]:
    """A session of its own: a Ctrl-C at the terminal reaches the launcher alone."""
    process = subprocess.Popen(
        [sys.executable, "-m", *module_and_flags],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            stdin.write(standard_input)
    except BrokenPipeError:
        pass  # it died at once, and its exit status is seen like any other
    return process


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def free_port() -> int:
    """One that nobody listens on now; a replica that finds it taken ends the launch."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=1.0)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def split_router_flags(argv: list[str], switches: frozenset[str]) -> tuple[list[str], list[str]]:
    """The server's arguments, and those that begin with `--router-` without that prefix. What
    follows a router's flag without "=" is its value, unless it is one of `switches`.
    """
    own: list[str] = []
    routers: list[str] = []
    is_value = False
    for word in argv:
        if word.startswith("--router-"):
            flag = "--" + word.removeprefix("--router-")
            routers.append(flag)
            is_value = "=" not in flag and flag not in switches
        elif is_value:
            routers.append(word)
            is_value = False
        else:
            own.append(word)
    return own, routers
