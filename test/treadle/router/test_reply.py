"""How an answer ends when it breaks off (rules A19, A21)."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.router.errors import UpstreamBroken
from treadle.router.reply import MAX_HELD_BYTES, BrokenAnswer, Reply
from treadle.srt.errors import NotAdmitted

ERROR = UpstreamBroken("gone", code="stream_broken")


class Client:
    def __init__(self) -> None:
        self.messages: list[dict] = []

    async def send(self, message) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)

    @property
    def is_complete(self) -> bool:
        return self.messages[-1].get("more_body") is False


def reply_of(path: str = "/generate") -> tuple[Client, Reply]:
    client = Client()
    return client, Reply(client.send, path)


async def test_headers_of_a_stream_go_out_at_once_and_others_with_the_body():
    client, reply = reply_of()
    await reply.start(200, [(b"a", b"b")], is_stream=True)
    assert client.messages == [
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    ]
    client, reply = reply_of()
    await reply.start(200, [], is_stream=False)
    assert client.messages == [] and reply.status is None
    await reply.write(b"x")
    assert [m["type"][14:] for m in client.messages] == ["start", "body"]


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_any_cut_of_a_stream_passes_on_whole_events_and_in_the_end_all(parts, line):  # A19
    async def run() -> None:
        client, reply = reply_of()
        await reply.start(200, [], is_stream=True)
        text = b"".join(part.replace(b"\n", b"").replace(b"\r", b"") + line * 2 for part in parts)
        whole = text + b"data: half"
        cuts = [whole[i : i + 7] for i in range(0, len(whole), 7)]
        for cut in cuts[:-1]:
            await reply.write(cut)
            assert client.body == b"" or client.body.endswith(line * 2)
        await reply.end(cuts[-1])
        assert client.body == whole and client.is_complete

    asyncio.run(run())


async def test_a_long_event_is_passed_on_in_parts():
    client, reply = reply_of()
    await reply.start(200, [], is_stream=True)
    part = b"x" * 1000
    for _ in range(100):
        await reply.write(part)
    assert len(client.body) >= 100_000 - MAX_HELD_BYTES - 1000


async def test_other_bodies_are_never_held():
    client, reply = reply_of()
    await reply.start(200, [], is_stream=False)
    await reply.write(b"half")
    assert client.body == b"half"


async def test_nothing_sent_is_an_error_of_its_own():
    client, reply = reply_of("/v1/messages")
    await reply.fail(NotAdmitted("no"), [(b"x-own", b"1")])
    start = client.messages[0]
    headers = dict(start["headers"])
    assert start["status"] == 503 and headers[b"x-own"] == b"1"
    assert headers[b"x-not-admitted"] == b"1" and headers[b"retry-after"]
    assert orjson.loads(client.body)["type"] == "error"
    await reply.fail(ERROR, [])
    assert len(client.messages) == 2  # once


async def test_a_started_plain_body_is_left_without_its_end():
    client, reply = reply_of()
    await reply.start(200, [], is_stream=False)
    await reply.write(b"half")
    await reply.fail(ERROR, [])
    assert client.body == b"half" and not client.is_complete


async def test_another_replica_cannot_change_what_was_told():
    client, reply = reply_of()
    await reply.start(200, [], is_stream=True)
    await reply.write(b"data: ha")
    await reply.start(200, [(b"other", b"1")], is_stream=True)
    await reply.write(b"data: 1\n\n")
    assert client.body == b"data: 1\n\n" and len(client.messages) == 2
    with pytest.raises(BrokenAnswer):
        await reply.start(503, [], is_stream=False)
