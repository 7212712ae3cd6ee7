"""When requests begin, and what waits for what."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

from test.treadle.bench.fake_server import REPLY, FakeServer
from treadle.bench.asks import Options
from treadle.bench.conversations import Conversation, Turn
from treadle.bench.load import Pace, play, starts
from treadle.bench.reach import open_http
from treadle.bench.sender import Sender, Target

INF = float("inf")


def one(at_s: float | None = None, turns: int = 1) -> Conversation:
    return Conversation(tuple(Turn(array("i", [n]), 1, 2) for n in range(turns)), at_s)


@pytest.mark.parametrize(("burstiness", "deviation"), [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0)])
def test_gaps_have_the_rate_and_the_deviation_of_a_gamma_process(
    burstiness: float, deviation: float
):
    times = starts([one()] * 20_000, Pace(5.0, burstiness, False, 0), random.Random(0))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(deviation, rel=0.05)


def test_a_trace_tells_times_or_is_refused():
    pace = Pace(INF, 1.0, True, 0)
    assert starts([one(4.0), one(6.5)], pace, random.Random(0)) == [0, 2.5]
    with pytest.raises(ValueError, match="no times"):
        starts([one(4.0), one()], pace, random.Random(0))
    assert starts([one(), one()], Pace(INF, 1.0, False, 0), random.Random(0)) == [0, 0]


async def run(server: FakeServer, load: list[Conversation], most: int, wire: str = "sglang"):
    heard: list = []
    async with server.running() as url, open_http({}) as http:
        sender = Sender(http, Target("a", url, wire, "m"), Options("m"))
        return await play(load, [0.0] * len(load), sender, most, heard.append), heard


async def test_turns_follow_one_another_and_hold_what_was_said():
    server = FakeServer()
    answers, heard = await run(server, [one(turns=3)], 1)
    prompts = [body["input_ids"] for body in server.bodies]
    assert prompts == [[0], [0, REPLY, REPLY, 1], [0, REPLY, REPLY, 1, REPLY, REPLY, 2]]
    assert [answer.input_len for answer in answers] == [1, 4, 7] and answers == heard


async def test_no_more_are_in_flight_than_the_limit():
    answers, _ = await run(FakeServer(), [one()] * 6, 2)
    spans = [(answer.sent_s, answer.sent_s + answer.e2e_s) for answer in answers]
    assert max(sum(a <= at < b for a, b in spans) for at, _ in spans) <= 2


async def test_an_error_ends_its_conversation_alone():
    answers, _ = await run(FakeServer(fails_after=1), [one(turns=3), one(turns=1)], 1)
    assert [bool(answer.error) for answer in answers] == [False, True, True]


async def test_a_prompt_that_the_backend_cannot_be_sent_stops_the_run():
    with pytest.raises(ValueError, match="chat backend"):
        await run(FakeServer(), [one()], 1, "openai-chat")
