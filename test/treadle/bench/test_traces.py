"""Prompts of a trace: who shares what with whom, at any length scale."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from treadle.bench.traces import Session, Speller, Turn, read_agents, read_chats

# t_s, input, output, parent, shared blocks, type, stop
REQUESTS = [
    [0.0, 640, 128, -1, 0, "s", ""],
    [9.0, 1280, 64, 0, 10, "s", ""],  # all of its parent's prompt, so its output too
    [5.0, 1600, 64, 1, 4, "s", ""],  # parts from its parent, and is dated before it
    [20.0, 320, 64, -1, 0, "s", ""],
]


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    path = tmp_path / "agents.jsonl"
    rows = [{"id": name, "block_tokens": 64, "requests": REQUESTS} for name in "ab"]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path


def shared(a, b) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def of(session: Session, prompt: int) -> Turn:
    return next(turn for turn in session.turns if turn.prompt == prompt)


@pytest.mark.parametrize("parts", [1, 4, 64])
def test_prompts_share_what_the_trace_says(agents: Path, parts: int):
    session = read_agents(agents, 1 / parts)[0]
    first, second, third, other = (of(session, n // parts) for n in (640, 1280, 1600, 320))
    speller = Speller()
    ids = {turn.prompt: speller.ids(turn, 0) for turn in session.turns}
    assert len(ids[first.prompt]) == first.prompt + first.output
    assert shared(ids[first.prompt], ids[second.prompt]) == 768 // parts == second.shared
    assert shared(ids[second.prompt], ids[third.prompt]) == 256 // parts == third.shared
    assert shared(ids[first.prompt], ids[other.prompt]) == 0 == other.shared


def test_a_turn_waits_for_the_one_that_it_goes_on_from(agents: Path):
    session = read_agents(agents, 1.0)[0]
    assert [turn.prompt for turn in session.turns] == [640, 1280, 1600, 320]
    assert [turn.after for turn in session.turns] == [-1, 0, 1, -1]
    assert session.turns[2].at_s == 9.0  # no earlier than what it goes on from
    assert session.followers == {-1: (0, 3), 0: (1,), 1: (2,)}
    assert [turn.prompt for turn in read_agents(agents, 1.0, 2)[0].turns] == [640, 1280]


def test_sessions_and_copies_share_nothing(agents: Path):
    a, b = read_agents(agents, 1.0)
    speller = Speller()
    first = speller.ids(a.turns[0], 0)
    assert shared(first, speller.ids(b.turns[0], 0)) == 0
    assert shared(first, speller.ids(a.turns[0], 1)) == 0
    assert first == Speller().ids(a.turns[0], 0)


def test_blocks_stay_whole(agents: Path):
    with pytest.raises(ValueError, match="length scale"):
        read_agents(agents, 1 / 3)


def test_chats_share_the_blocks_that_they_name(tmp_path: Path):
    path = tmp_path / "chats.jsonl"
    rows = [
        {"timestamp": 1500, "input_length": 1200, "output_length": 64, "hash_ids": [0, 1, 2]},
        {"timestamp": 2500, "input_length": 1536, "output_length": 64, "hash_ids": [0, 1, 3]},
    ]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    first, second = read_chats(path, 1 / 64)
    speller = Speller()
    ids = [speller.ids(session.turns[0], 0) for session in (first, second)]
    assert [len(found) for found in ids] == [19 + 1, 24 + 1]
    assert shared(*ids) == 16 == second.turns[0].shared
    assert first.key == second.key and second.start_s == 2.5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "not of the expected form"),
        ({"id": "a", "requests": []}, "no 'block_tokens'"),
        ({"id": "a", "block_tokens": 64, "requests": []}, "without requests"),
        ({"id": "a", "block_tokens": 64, "requests": [[0, 9, 9, 3, 0, "s"]]}, "not before it"),
        ({"id": "a", "block_tokens": 64, "requests": [[0, 1e30, 9, -1, 0, "s"]]}, "at most"),
    ],
)
def test_a_damaged_line_is_named(agents: Path, row: object, message: str):
    lines = agents.read_bytes().splitlines()
    agents.write_bytes(lines[0] + b"\n" + orjson.dumps(row))
    with pytest.raises(ValueError, match=rf"{agents.name}, line 2: .*{message}"):
        read_agents(agents, 1.0)


@pytest.mark.parametrize("damage", [{"hash_ids": [[1]]}, {"timestamp": "x"}, {"input_length": ""}])
def test_a_damaged_request_of_a_chat_trace_is_named(tmp_path: Path, damage: dict):
    row = {"timestamp": 0, "input_length": 9, "output_length": 9, "hash_ids": [0]}
    path = tmp_path / "chats.jsonl"
    path.write_bytes(orjson.dumps(row | damage))
    with pytest.raises(ValueError, match=r"chats\.jsonl, line 1: "):
        read_chats(path, 1.0)
