"""Readiness and load as replicas tell them (rules A8, A13, A14, A17)."""

from __future__ import annotations

import asyncio
import time

import pytest

from test.treadle.router.fake_replica import Seen, answer, hang
from test.treadle.router.harness import routing, until
from treadle.router import probes
from treadle.router.probes import FALLBACK


async def test_nothing_is_generated_to_learn_of_health():  # A17
    async with routing(answer()) as bench:
        await bench.probe()
        (replica,) = bench.replicas
        assert {seen.path for seen in replica.asked} == {"/ready"}
        assert not replica.seen


async def test_a_server_without_readiness_is_asked_for_health():
    async with routing(answer(), is_ready=False) as bench:
        (replica,) = bench.replicas
        plain = replica._answer

        async def without_ready(seen: Seen, wire) -> None:
            if seen.path == "/ready":
                await answer(404)(seen, wire)
            else:
                await plain(seen, wire)

        replica._answer = without_ready  # type: ignore[method-assign]
        await bench.probe()
        assert bench.life(replica).state == "ready"
        assert {seen.path for seen in replica.asked} == {FALLBACK}
        running = bench.router._prober._probes
        await until(lambda: not any(asking.is_open for asking in running.values()))
        replica._answer = plain  # type: ignore[method-assign]
        replica.asked.clear()
        await bench.probe()  # a 404 is of its moment: another server may stand there now
        assert {seen.path for seen in replica.asked} == {"/ready"}


async def test_a_replica_that_is_silent_delays_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probes, "TICK_S", 0.01)
    health = {"interval_s": 0.01, "timeout_s": 600.0}
    async with routing(answer(), answer(), is_ready=False, health=health) as bench:
        silent, other = bench.replicas
        silent._answer = hang  # type: ignore[method-assign]
        await until(lambda: len(other.asked) > 5)
        assert bench.life(other).state == "ready"
        assert bench.life(silent).state == "starting"


async def test_a_503_is_the_replicas_own_word():  # A13
    async with routing(answer()) as bench:
        (replica,) = bench.replicas
        replica.ready = 503
        await bench.probe()
        assert bench.life(replica).state == "draining"
        await replica.stop()
        await bench.probe()
        assert bench.life(replica).state == "starting"


async def test_probes_that_fail_open_the_breaker():  # A14
    async with routing(answer()) as bench:
        (replica,) = bench.replicas
        await replica.stop()
        for _ in range(3):
            assert bench.life(replica).state == "ready"
            await bench.probe()
        assert bench.life(replica).state == "suspect"


async def test_only_what_is_due_is_asked():
    async with routing(answer(), answer(), health={"interval_s": 10.0}) as bench:
        prober, (calm, odd) = bench.router._prober, bench.replicas
        now = time.monotonic()
        await asyncio.gather(*prober.due(now + 1000.0))
        for replica in bench.replicas:
            replica.asked.clear()
        await asyncio.gather(*prober.due(now + 1005.0))
        assert not calm.asked and not odd.asked
        bench.router._replicas.get(odd.url).wants_probe = True
        await asyncio.gather(*prober.due(now + 1006.0))
        assert not calm.asked and len(odd.asked) == 1
        await asyncio.gather(*prober.due(now + 1010.0))
        assert len(calm.asked) == 1


async def test_reported_load_corrects_what_was_counted():  # A8
    async with routing(answer()) as bench:
        (replica,) = bench.replicas
        (known,) = bench.router._replicas
        load: dict[str, object] = {"dp_rank": 0, "num_running_reqs": 2, "num_waiting_reqs": 1}
        replica.load = load | {"num_uncached_tokens": 5000}
        await bench.router._prober.read_load(known)
        fleet = bench.router._replicas.fleet
        assert fleet.load(replica.url) == 5000 + 3 * 256
        useless: tuple[dict[str, object], ...] = ({}, {"num_running_reqs": None})
        for report in useless:
            replica.load = report
            await bench.router._prober.read_load(known)
        replica.load = None
        await bench.router._prober.read_load(known)
        assert fleet.load(replica.url) == 5768
