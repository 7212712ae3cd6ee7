"""The router's process: builds its parts, serves, probes, follows lists, stops in order.

On SIGTERM or SIGINT it takes no new requests, lets those under way end for `grace_s`, tells the
rest, and ends. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import signal
import socket
import time
from collections.abc import Coroutine

import prometheus_client
import uvloop
from starlette.types import Receive, Scope, Send

from ..srt.config import NetSection
from ..srt.errors import ConfigError, NotAdmitted, Overloaded
from ..srt.log import event, setup_logging
from ..srt.net.http_server import HttpServer, bind
from .access import Access
from .admin import WorkerRoutes
from .app import METRICS_TYPE, RouterApp, Serving, Surface
from .config import RouterConfig
from .discovery import Follower, make_source
from .fanout import FanOut
from .fleet import Fleet
from .forward import Forwarder
from .gate import Gate
from .incoming import ReadRules
from .inflight import Inflight
from .journey import Parts, RetryRules
from .metrics import RouterMetrics
from .outcomes import RetryBudget
from .policies import make_policy
from .probes import Prober, ProbeRules
from .ranges import check_ranges
from .replicas import Address, Replicas
from .sessions import ServerSessions
from .upstream import Upstream

log = logging.getLogger(__name__)

TICK_S = 0.25


def run(config: RouterConfig) -> None:
    """Until a stop signal; main thread only. Raises ConfigError, and NotAdmitted when no worker
    became ready in time.
    """
    setup_logging(config.net.log_level, "router")
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    uvloop.run(serve(config))


async def serve(config: RouterConfig) -> None:
    with bind(config.net.host, config.net.port) as sock:
        await _serve_on(sock, config)


async def _serve_on(sock: socket.socket, config: RouterConfig) -> None:
    async with make_upstream(config) as upstream:
        router = Router(config, upstream)
        await router.serve(sock)


def make_upstream(config: RouterConfig) -> Upstream:
    limits = config.limits
    return Upstream(limits.idle_timeout_s, limits.connect_timeout_s, tls=config.workers.ssl_verify)


class Router:
    def __init__(self, config: RouterConfig, upstream: Upstream) -> None:
        """Raises ConfigError for addresses that are none."""
        self._config = config
        fleet = Fleet(config.policy.load_eps, config.policy.load_gap)
        self._replicas = Replicas(fleet, config.life_rules(), config.load_rules())
        self._metrics = RouterMetrics(config.policy.name)
        self._inflight = Inflight()
        self._sessions = ServerSessions()
        self._serving = Serving()
        self._is_hurried = asyncio.Event()
        self._upstream = upstream
        self._api_key = config.workers.api_key or config.net.api_key
        self._add_first()
        self._follower = self._make_follower()
        self._prober = Prober(
            self._replicas, upstream, self._metrics, probe_rules(config), config.load_rules()
        )
        self._surface = self._make_surface()
        self._failure: BaseException | None = None

    async def serve(self, sock: socket.socket) -> None:
        """Raises NotAdmitted when no worker became ready in time."""
        net = self._config.net
        server = HttpServer(RouterApp(self._surface), net)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        tasks = [*map(asyncio.create_task, (*self._jobs(), self._tick(server)))]
        for task in tasks:  # one that ends by an error ends the router
            task.add_done_callback(lambda task: self._look_at(task, server))
        log.info(event("listening", {"host": net.host, "port": sock.getsockname()[1]}))
        try:
            await server.serve(sockets=[sock])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def _look_at(self, task: asyncio.Task[None], server: HttpServer) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, NotAdmitted):
                log.error("a task of the router failed", exc_info=error)
            self._failure = self._failure or error
            server.should_exit = True

    def _jobs(self) -> list[Coroutine[object, object, None]]:
        jobs: list[Coroutine[object, object, None]] = [self._prober.run()]
        if self._follower is not None:
            jobs.append(self._follower.run())
        watch = self._config.watch
        if watch.prometheus_port >= 0:
            jobs.append(self._serve_metrics(bind(watch.prometheus_host, watch.prometheus_port)))
        return jobs

    def _stop(self) -> None:
        if self._serving.is_stopping:
            self._is_hurried.set()
        self._serving.is_stopping = True

    async def _tick(self, server: HttpServer) -> None:
        """What follows from time: weights, drains, the end."""
        began, stopped_at = time.monotonic(), 0.0
        has_served = False
        while True:
            now = time.monotonic()
            for replica in self._replicas.refresh(now):
                for flight in self._inflight.at(replica.name):
                    flight.end(Overloaded("the replica is being drained; its time is over"))
            self._metrics.sessions_lost(self._sessions.lose(self._is_known))
            has_served = has_served or self._replicas.fleet.num_eligible > 0
            if not has_served and now - began > self._config.workers.startup_timeout_s:
                raise NotAdmitted("no worker became ready in time")
            if self._serving.is_stopping:
                stopped_at = stopped_at or now
                if await self._has_ended(now - stopped_at):
                    break
            await asyncio.sleep(TICK_S)
        server.should_exit = True

    async def _has_ended(self, stopping_s: float) -> bool:
        if len(self._inflight) and stopping_s < self._config.limits.grace_s:
            return self._is_hurried.is_set() and await self._tell_all()
        return await self._tell_all()

    async def _tell_all(self) -> bool:
        for flight in self._inflight:
            flight.end(Overloaded("the router is shutting down"))
        await asyncio.sleep(0)
        return True

    def _is_known(self, name: str) -> bool:
        return self._replicas.get(name) is not None

    def _add_first(self) -> None:
        for text in self._config.workers.urls.split():
            try:
                address = Address.parse(text)
            except ValueError as e:
                raise ConfigError(f"--worker-urls {text}: {e}") from None
            self._replicas.add(address, is_first=True, api_key=self._api_key)

    def _make_follower(self) -> Follower | None:
        workers = self._config.workers
        source = make_source(workers.file, workers.dns)
        if source is None:
            return None
        return Follower(source, self._replicas, workers.discovery_s, self._api_key)

    def _make_surface(self) -> Surface:
        config, replicas, inflight = self._config, self._replicas, self._inflight
        rng = random.Random()
        policy = make_policy(config.policy_rules(), rng)
        parts = Parts(
            replicas,
            policy,
            self._upstream,
            self._sessions,
            RetryBudget(config.retry.budget),
            self._metrics,
            retry_rules(config),
            rng,
        )
        most = config.net.max_body_bytes
        return Surface(
            forwarder=Forwarder(parts, inflight, make_gate(config), read_rules(config), most),
            fan_out=FanOut(replicas, self._upstream, inflight, most),
            workers=WorkerRoutes(replicas, self._api_key),
            replicas=replicas,
            inflight=inflight,
            policy=policy,
            metrics=self._metrics,
            access=Access(config.net.api_key, config.watch.admin_api_key),
            serving=self._serving,
        )

    async def _serve_metrics(self, sock: socket.socket) -> None:
        surface = self._surface

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            body = surface.metrics.render(surface.replicas, surface.inflight, surface.policy)
            headers = [(b"content-type", METRICS_TYPE.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        with sock:
            await HttpServer(app, NetSection(log_level_http="warning")).serve(sockets=[sock])


def settle(config: RouterConfig) -> RouterConfig:
    """With everything that depends on other values filled in. Raises ConfigError."""
    check_ranges(config)
    net = config.net
    if not (config.workers.urls or config.workers.file or config.workers.dns):
        raise ConfigError("--worker-urls, --worker-file or --worker-dns must be given")
    if bool(net.ssl_keyfile) != bool(net.ssl_certfile):
        raise ConfigError("--ssl-keyfile and --ssl-certfile go together")
    if config.retry.max_retries not in (0, 1):
        limit = "must be 0 or 1: at most two attempts are made"
        raise ConfigError(f"--retry-max-retries {config.retry.max_retries}: {limit}")
    config.key_rules()
    level = net.log_level_http or ("warning" if net.log_level == "info" else net.log_level)
    return dataclasses.replace(config, net=dataclasses.replace(net, log_level_http=level))


def probe_rules(config: RouterConfig) -> ProbeRules:
    health = config.health
    return ProbeRules(health.endpoint, health.timeout_s, health.interval_s, health.load_interval_s)


def retry_rules(config: RouterConfig) -> RetryRules:
    retry, limits = config.retry, config.limits
    attempts = 1 + (retry.max_retries if retry.is_on else 0)
    return RetryRules(attempts, limits.request_timeout_s, retry.back_off_ms / 1000)


def read_rules(config: RouterConfig) -> ReadRules:
    policy = config.policy
    compares = "cache_aware" in (policy.name, policy.keyless)
    return ReadRules(
        config.key_rules(),
        wants_text=compares or policy.name == "consistent_hashing",
        is_isolated=policy.cache_isolation == "per-key",
    )


def make_gate(config: RouterConfig) -> Gate:
    limits = config.limits
    return Gate(limits.max_concurrent, limits.rate_limit, limits.queue_size, limits.queue_timeout_s)
