"""The scheduler process before its loop: capacities, bookkeeping, the line that tools grep."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from test.grammars import pieces, table
from treadle.srt.errors import InvariantBroken
from treadle.srt.grammar.mask import Vocabulary
from treadle.srt.lifecycle import Ready, Shutdown
from treadle.srt.messages import Flush, Message
from treadle.srt.net.ipc import Hub
from treadle.srt.procs import scheduler
from treadle.srt.procs.boot import Boot
from treadle.srt.token_masks import TokenBytes

from .test_boot import make_boot

WAIT_S = 60.0


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    boot = make_boot(tmp_path)
    config = boot.config
    cache = replace(config.cache, replay_slope=0, adopt_min_saving=16, canonical_grid=4096)
    sched = replace(config.sched, max_running=4, chunk_tokens=64)
    model = replace(config.model, context_len=64)
    config = replace(config, cache=cache, sched=sched, model=model)
    return replace(boot, role="scheduler", rank=0, config=config)


def serve(hub: Hub, boot: Boot, *messages: Message) -> None:
    outbox = hub.outbox(boot.endpoints.scheduler)
    for message in messages:
        outbox.send(message)
    scheduler.serve(boot, hub, hub.outbox(boot.endpoints.launcher))


READY = Ready("worker", 0, num_pages=101, num_slots=5)
TABLE = table(pieces(10))


def test_capacity_is_logged_and_passed_on(hub: Hub, boot: Boot, caplog: pytest.LogCaptureFixture):
    launcher = hub.inbox(boot.endpoints.launcher)
    with caplog.at_level(logging.INFO):
        serve(hub, boot, READY, TABLE, Shutdown("x"))
    assert launcher.recv(WAIT_S) == Ready("scheduler", 0, 101, 5)
    assert "max_total_num_tokens=1600 max_running_requests=4" in caplog.text
    assert "dp_size=1" in caplog.text


@pytest.mark.parametrize("order", [(READY, TABLE), (TABLE, READY)])
def test_vocabulary_of_grammars_is_made_before_it_is_ready(
    hub: Hub, boot: Boot, order: tuple[Message, ...], monkeypatch: pytest.MonkeyPatch
):
    """So no request ever stands still for it."""
    launcher, made_before = hub.inbox(boot.endpoints.launcher), []

    def make(table: TokenBytes, vocab_size: int) -> Vocabulary:
        made_before.append(launcher.drain())
        return Vocabulary(table, vocab_size)

    monkeypatch.setattr(scheduler, "Vocabulary", make)
    serve(hub, boot, *order, Shutdown("x"))
    assert made_before == [[]]
    assert isinstance(launcher.recv(WAIT_S), Ready)


def test_capacities_alone_do_not_make_it_ready(hub: Hub, boot: Boot):
    launcher = hub.inbox(boot.endpoints.launcher)
    serve(hub, boot, READY, Shutdown("x"))
    assert launcher.recv(0.05) is None


def test_without_grammars_it_waits_for_no_table(hub: Hub, boot: Boot):
    launcher = hub.inbox(boot.endpoints.launcher)
    sched = replace(boot.config.sched, grammar_backend="none")
    boot = replace(boot, config=replace(boot.config, sched=sched))
    serve(hub, boot, READY, Shutdown("x"))
    assert isinstance(launcher.recv(WAIT_S), Ready)


def test_shutdown_before_the_workers_are_ready_ends_it(hub: Hub, boot: Boot):
    serve(hub, boot, Shutdown("x"))


def test_anything_else_before_the_workers_are_ready_is_a_bug(hub: Hub, boot: Boot):
    with pytest.raises(InvariantBroken, match="Flush before the replica is ready"):
        serve(hub, boot, Flush(1))


def test_bookkeeping_has_the_worker_s_capacities_and_the_model_s_replay(boot: Boot):
    books = scheduler.build_bookkeeping(boot, Ready("worker", 0, num_pages=33, num_slots=5), None)
    assert (books.cache.facts.num_pages, books.cache.facts.num_slots) == (33, 5)
    assert books.cache.rule.window == 8
    books.cache.check()
