"""Reads give all there is; what breaks before the first read is as if nothing had come."""

from __future__ import annotations

import asyncio

import pytest

from treadle.router import exchange as exchange_module
from treadle.router.answer import Answer
from treadle.router.exchange import Exchange
from treadle.router.outcomes import Break, Broken

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=x\r\ncontent-length: 6\r\n\r\n"
BROKE = Broken(Break.NO_ANSWER, "gone")


class Carrier:
    def __init__(self) -> None:
        self.num_taken = 0
        self.is_aborted = False

    def taken(self) -> None:
        self.num_taken += 1

    def abort(self) -> None:
        self.is_aborted = True


def begun(*parts: bytes) -> tuple[Carrier, Exchange]:
    carrier = Carrier()
    exchange = Exchange(carrier, Answer())
    for part in parts:
        exchange.answer.feed(part)
    return carrier, exchange


async def test_headers_are_read_by_lower_case_name():
    _, exchange = begun(HEAD)
    await exchange.head()
    assert exchange.status == 200 and exchange.content_type == "text/event-stream"
    assert exchange.header("content-length") == "6" and exchange.header("x") is None


async def test_a_read_gives_all_pieces_at_once():
    carrier, exchange = begun(HEAD, b"ab", b"cd")
    assert await exchange.read() == b"abcd" and carrier.num_taken == 1
    exchange.answer.feed(b"ef")
    assert not exchange.is_read
    assert await exchange.read_all() == b"ef"
    assert exchange.is_read and await exchange.read() == b""


async def test_what_is_held_as_a_whole_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange_module, "MAX_WHOLE_BYTES", 5)
    _, exchange = begun(HEAD, b"abcde")
    exchange.answer.feed(b"f")
    with pytest.raises(Broken, match="more than 5 bytes"):
        await exchange.read_all()
    _, exchange = begun(HEAD.replace(b"6", b"5"), b"abcde")
    assert await exchange.read_all() == b"abcde"


async def test_who_waits_is_woken_once_something_came():
    _, exchange = begun()
    waiting = asyncio.ensure_future(exchange.head())
    await asyncio.sleep(0)
    exchange.answer.feed(HEAD[:20])
    exchange.came()
    await asyncio.sleep(0)
    assert not waiting.done()
    exchange.answer.feed(HEAD[20:])
    exchange.came()
    exchange.came()
    await waiting
    reading = asyncio.ensure_future(exchange.read())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    exchange.came()  # nobody waits
    exchange.ended(BROKE)
    with pytest.raises(Broken):
        await exchange.read()


async def test_bytes_before_a_break_count_only_after_a_first_read():  # 4.5, A21
    _, exchange = begun(HEAD, b"ab")
    exchange.ended(BROKE)
    with pytest.raises(Broken):
        await exchange.read()
    _, exchange = begun(HEAD, b"ab")
    await exchange.read()
    exchange.answer.feed(b"cd")
    exchange.ended(BROKE)
    assert await exchange.read() == b"cd"
    with pytest.raises(Broken):
        await exchange.read()


def test_closing_closes_the_connection_only_while_it_is_ours():
    carrier, exchange = begun(HEAD)
    exchange.close()
    assert carrier.is_aborted
    carrier, exchange = begun(HEAD, b"abcdef")
    exchange.ended()
    exchange.close()
    assert not carrier.is_aborted
