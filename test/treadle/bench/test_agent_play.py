"""Sessions at once: who waits for whom, what a cache could have, when a run ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from test.treadle.bench import agent_trace
from test.treadle.bench.fake_server import FakeServer
from treadle.bench.agent_play import Choice, Pace, Part, Player, Sample, choose, in_common
from treadle.bench.asks import Options
from treadle.bench.reach import open_http
from treadle.bench.sender import Sender, Target
from treadle.bench.traces import Session, Turn, read_agents
from treadle.bench.vocabulary import WORDS, Vocabulary

FIRST = Turn(0.0, 6, 2, -1, 0, 0, ((0, 0, 8),))
NEXT = Turn(1.0, 12, 3, 0, 8, 1, ((0, 0, 8), (1, 8, 15)))
BACK = Turn(2.0, 9, 1, 0, 4, 2, ((0, 0, 4), (2, 4, 10)))
WORDLIST = Vocabulary(WORDS, tuple(range(len(WORDS))), (), 1.0)


@pytest.fixture
def sessions(tmp_path: Path) -> list[Session]:
    return read_agents(agent_trace.write(tmp_path), 1 / 64)


async def play(sessions: list[Session], pace: Pace, server: FakeServer) -> list[Sample]:
    async with server.running() as url, open_http({}) as http:
        sender = Sender(http, Target("a", url, "sglang", "m"), Options("m"))
        parts = choose(sessions, Choice(0, 0, 0.0, 0.0, 1))
        return await Player(parts, WORDLIST, "r", is_live=True).play(sender, pace, lambda x: None)


def test_a_cache_that_forgets_nothing_lacks_last_tokens_only():
    assert in_common(NEXT, FIRST) == 7  # its last output token was never an input
    assert in_common(FIRST, NEXT) == 5  # the last prompt token's logits are wanted
    assert in_common(BACK, FIRST) == 4 == in_common(BACK, NEXT)
    assert in_common(Turn(0.0, 6, 2, -1, 0, 9, ((9, 0, 8),)), FIRST) == 0


def test_sessions_that_do_not_fit_are_left_out(sessions: list[Session]):
    assert len(choose(sessions, Choice(0, 26, 0.0, 0.0, 1))) == 2
    with pytest.raises(ValueError, match="25 tokens"):
        choose(sessions, Choice(0, 25, 0.0, 0.0, 1))
    assert len(choose(sessions, Choice(2, 25, 0.0, 0.0, 1))[0].turns) == 2


def test_sessions_begin_between_the_shares(sessions: list[Session]):
    parts = choose(sessions, Choice(0, 0, 1.0, 1.0, 1))
    assert [(part.first, len(part.turns)) for part in parts] == [(2, 1)] * 2
    assert {part.first for part in choose(sessions * 20, Choice(0, 0, 0.4, 0.9, 1))} == {1, 2}


async def test_lanes_take_sessions_in_turns_and_each_is_its_own(sessions: list[Session]):
    server = FakeServer()
    samples = await play(sessions, Pace(2, 5, 0.0, 0.0, 0.0), server)
    assert len(samples) == 15 and len({sample.session for sample in samples}) == 5
    firsts = [tuple(b["input_ids"]) for b in server.bodies if len(b["input_ids"]) == 10]
    assert len(set(firsts)) == 5  # a trace that is played again has other tokens
    assert sorted(sample.best for sample in samples) == [0] * 5 + [4] * 5 + [11] * 5


async def test_think_time_is_the_scaled_gap_up_to_the_limit(
    sessions: list[Session], monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await play(sessions, Pace(1, 1, 0.0, 0.5, 4.0), FakeServer())
    assert slept[:2] == [4.0, 1.5]  # half of 9 is above the limit; half of 3


async def test_a_session_ends_with_its_first_error(sessions: list[Session]):
    samples = await play(sessions, Pace(1, 2, 0.0, 0.0, 0.0), FakeServer(fails_after=1))
    assert [bool(sample.answer.error) for sample in samples] == [False, True, True]


@pytest.mark.parametrize(("seconds", "turns"), [(0.5, 1), (2.0, 2), (3.0, 3), (3.5, 4)])
async def test_no_turn_begins_after_the_time(
    sessions: list[Session], monkeypatch: pytest.MonkeyPatch, seconds: float, turns: int
):
    """A session has three; an answer takes a second."""
    server = FakeServer()
    monkeypatch.setattr(Sender, "now_s", lambda sender: float(len(server.asked)))
    assert len(await play(sessions, Pace(1, 0, seconds, 0.0, 0.0), server)) == turns


async def test_prompts_that_the_backend_cannot_be_sent_are_told():
    part = Part(Session("s", (FIRST, NEXT)), 0, 2)
    server = FakeServer()
    async with server.running() as url, open_http({}) as http:
        sender = Sender(http, Target("a", url, "openai", "m"), Options("m"))
        player = Player([part], WORDLIST, "r", is_live=True)
        with pytest.raises(ValueError, match="--replies recorded"):
            await player.play(sender, Pace(1, 1, 0.0, 0.0, 0.0), lambda x: None)
