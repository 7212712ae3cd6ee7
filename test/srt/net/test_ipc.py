"""Sockets between processes, over both transports."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.srt.errors import ConfigError
from treadle.srt.lifecycle import Shutdown
from treadle.srt.messages import AbortAll, Flush, Message, StatsRequest
from treadle.srt.net.ipc import MAX_PATH_BYTES, Endpoints, Hub, make_endpoints, send_all

WAIT_S = 60.0


@pytest.fixture(params=["ipc", "tcp"])
def endpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Endpoints:
    return make_endpoints(request.param, tmp_path, 2)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def test_messages_of_one_sender_arrive_in_order_even_if_bound_later(hub: Hub, endpoints: Endpoints):
    outbox = hub.outbox(endpoints.scheduler)
    sent = [Flush(i) for i in range(500)]
    for message in sent:
        outbox.send(message)
    inbox = hub.inbox(endpoints.scheduler)
    assert [inbox.recv(WAIT_S) for _ in sent] == sent
    assert inbox.drain() == []


def test_inbox_takes_from_many_senders(hub: Hub, endpoints: Endpoints):
    inbox = hub.inbox(endpoints.scheduler)
    for i in range(3):
        hub.outbox(endpoints.scheduler).send(Flush(i))
    got = {inbox.recv(WAIT_S) for _ in range(3)}
    assert got == {Flush(0), Flush(1), Flush(2)}


def test_recv_returns_none_after_its_timeout(hub: Hub, endpoints: Endpoints):
    assert hub.inbox(endpoints.scheduler).recv(0.01) is None


def test_broadcast_reaches_every_worker(hub: Hub, endpoints: Endpoints):
    inboxes = [hub.inbox(address) for address in endpoints.workers]
    send_all(tuple(hub.outbox(address) for address in endpoints.workers), Shutdown("x"))
    assert [inbox.recv(WAIT_S) for inbox in inboxes] == [Shutdown("x")] * 2


def test_sending_to_nobody_neither_blocks_nor_delays_closing(endpoints: Endpoints):
    def send() -> None:
        with Hub() as hub:
            outbox = hub.outbox(endpoints.scheduler)
            for i in range(5000):
                outbox.send(Flush(i))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_last_word_arrives_although_the_sender_closes_at_once(hub: Hub, endpoints: Endpoints):
    inbox = hub.inbox(endpoints.launcher)
    with Hub() as dying:
        dying.outbox(endpoints.launcher, linger_ms=5000).send(AbortAll("bye"))
    assert inbox.recv(WAIT_S) == AbortAll("bye")


def test_wake_ends_the_waiting_of_an_inbox_and_is_not_forgotten(hub: Hub, endpoints: Endpoints):
    inbox = hub.inbox(endpoints.scheduler)
    thread = threading.Thread(target=inbox.wake)
    thread.start()
    assert inbox.recv(WAIT_S) is None
    thread.join()
    inbox.wake()
    inbox.wake()
    assert inbox.recv(WAIT_S) is None
    hub.outbox(endpoints.scheduler).send(Flush(1))
    assert inbox.recv(WAIT_S) == Flush(1)


def test_wake_after_the_end_does_nothing(endpoints: Endpoints):
    with Hub() as hub:
        inbox = hub.inbox(endpoints.scheduler)
    inbox.wake()


async def test_async_channel_talks_both_ways(hub: Hub, endpoints: Endpoints):
    scheduler = hub.inbox(endpoints.scheduler)
    channel = hub.channel(endpoints.tokenizer, endpoints.scheduler)
    to_tokenizer = hub.outbox(endpoints.tokenizer)
    received: list[Message] = []

    async def read() -> None:
        for _ in range(100):
            received.append(await channel.recv())

    reader = asyncio.create_task(read())
    channel.send(StatsRequest(7))
    assert await asyncio.to_thread(scheduler.recv, WAIT_S) == StatsRequest(7)
    for i in range(100):
        to_tokenizer.send(Flush(i))
    await asyncio.wait_for(reader, WAIT_S)
    assert received == [Flush(i) for i in range(100)]


def test_address_in_use_is_a_config_error(tmp_path: Path):
    endpoints = make_endpoints("tcp", tmp_path, 1)
    with Hub() as hub:
        hub.inbox(endpoints.scheduler)
        with pytest.raises(ConfigError, match="cannot bind tcp://127.0.0.1:.*in use"):
            hub.inbox(endpoints.scheduler)


def test_socket_file_is_in_the_folder_and_can_be_bound_again_after_a_crash(tmp_path: Path):
    address = make_endpoints("ipc", tmp_path, 1).scheduler
    for _ in range(2):  # nobody removes the file of the first round, as after kill -9
        with Hub() as hub:
            hub.inbox(address)
            (file,) = tmp_path.iterdir()
            assert stat.S_ISSOCK(file.stat().st_mode)


def test_too_long_folder_name_is_refused_before_anything_starts(tmp_path: Path):
    folder = tmp_path / ("x" * MAX_PATH_BYTES)
    with pytest.raises(ConfigError, match=f"allows {MAX_PATH_BYTES}.*TMPDIR.*--ipc-transport tcp"):
        make_endpoints("ipc", folder, 1)
    assert make_endpoints("tcp", folder, 1).scheduler.startswith("tcp://127.0.0.1:")


def test_all_addresses_differ(endpoints: Endpoints):
    addresses = [endpoints.launcher, endpoints.tokenizer, endpoints.scheduler, *endpoints.workers]
    assert len(set(addresses)) == 5
