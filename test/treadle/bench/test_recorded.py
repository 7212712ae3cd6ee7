"""Load that files describe."""

from __future__ import annotations

from array import array
from pathlib import Path

import orjson
import pytest

from test.treadle.bench.test_conversations import MUTE, WORDS
from treadle.bench.asks import Message
from treadle.bench.recorded import Slice, TraceScale, agentic, lines, mooncake

ALL = Slice()


async def count(text: str) -> int:
    return len(text.split())


def write(folder: Path, rows: list) -> Path:
    path = folder / "load.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path


def test_mooncake_blocks_are_equal_where_their_ids_are(tmp_path: Path):
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 40, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 1024, "output_length": 8, "hash_ids": [0, 3]},
    ]
    path = write(tmp_path, rows)
    first, second = mooncake(path, ALL, TraceScale(2.0, 1 / 8, True, 1), WORDS)
    assert (first.at_s, second.at_s) == (0, 6)
    a, b = (one.turns[0] for one in (first, second))
    assert (len(a.addition), a.output_len, len(b.addition)) == (138, 5, 128)
    assert a.addition[:64] == b.addition[:64] and a.addition[64:128] != b.addition[64:]
    text = mooncake(path, Slice(1, 1), TraceScale(1.0, 1 / 8, False, 1), WORDS)
    assert len(text) == 1 and len(text[0].turns[0].addition.split()) == 128
    with pytest.raises(ValueError, match="--tokenizer"):
        mooncake(path, ALL, TraceScale(1.0, 1 / 8, True, 1), MUTE)
    with pytest.raises(ValueError, match="whole"):
        mooncake(path, ALL, TraceScale(1.0, 1 / 1000, False, 1), WORDS)


@pytest.mark.parametrize("as_ids", [False, True])
def test_mooncake_rounds_ask_the_same_again(tmp_path: Path, as_ids: bool):
    row = {"timestamp": 0, "input_length": 512, "output_length": 8, "hash_ids": [7]}
    (one,) = mooncake(write(tmp_path, [row]), ALL, TraceScale(1.0, 1 / 64, as_ids, 3), WORDS)
    first, *again = (turn.addition for turn in one.turns)
    assert [turn.output_len for turn in one.turns] == [8 // 64 or 1] * 3
    assert again[0] == again[1]
    if as_ids:  # what the model wants before a text stands once
        assert (first[0], len(first)) == (WORDS.prefix[0], 8)
        assert first[1:] == again[0][:-1]
    else:
        assert first == again[0]


async def test_lines_are_prompts_messages_or_conversations(tmp_path: Path):
    chat = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c d e"}]
    said = [{"from": "human", "value": "a b c"}, {"from": "gpt", "value": "d e"}]
    rows = [
        {"prompt": "a b c d", "output_len": 7, "timestamp": 1500},
        {"prompt": [4, 5, 6], "max_tokens": 3},
        {"messages": chat},
        {"conversations": said},
    ]
    path = write(tmp_path, rows)
    found = await lines(path, ALL, 0, count)
    turns = [one.turns[0] for one in found]
    assert [(turn.input_len, turn.output_len) for turn in turns] == [(4, 7), (3, 3), (2, 3), (3, 2)]
    assert turns[1].addition == array("i", [4, 5, 6])
    assert turns[2].addition == (Message("user", "a b"),)
    assert [one.at_s for one in found] == [1.5, None, None, None]
    assert [one.turns[0].output_len for one in await lines(path, Slice(1, 2), 9, count)] == [9, 9]


async def test_an_array_of_entries_is_read_as_lines_are(tmp_path: Path):
    path = tmp_path / "sharegpt.json"
    path.write_bytes(orjson.dumps([{"conversations": [{"value": "a b"}, {"value": "c"}]}]))
    (one,) = await lines(path, ALL, 0, count)
    assert (one.turns[0].addition, one.turns[0].output_len) == ("a b", 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [({"text": "a"}, "entry 1: none of prompt"), ({"prompt": "a"}, "entry 1: no output_len")],
)
async def test_a_line_that_cannot_be_sent_is_named(tmp_path: Path, row: dict, message: str):
    with pytest.raises(ValueError, match=message):
        await lines(write(tmp_path, [row]), ALL, 0, count)
    (tmp_path / "bad").write_text('{"prompt": "a"\n')
    with pytest.raises(ValueError, match="bad, line 1"):
        await lines(tmp_path / "bad", ALL, 4, count)


def test_an_agentic_trace_has_the_new_messages_of_each_turn(tmp_path: Path):
    turn = {"messages": [{"role": "user", "content": "a b"}], "prompt_tokens": 2}
    path = tmp_path / "agents.json"
    path.write_bytes(orjson.dumps({"metadata": {}, "conversations": [[turn] * 5, [turn]]}))
    long, short = agentic(path, ALL, 3, 0)
    assert (len(long.turns), len(short.turns)) == (3, 1)
    assert long.turns[0].addition == (Message("user", "a b"),) and long.turns[0].output_len == 220
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match="conversations"):
        agentic(path, ALL, 0, 0)


@pytest.mark.parametrize(
    "row",
    [
        5,
        {"prompt": ["a"], "output_len": 1},
        {"prompt": [1 << 40], "output_len": 1},
        {"prompt": "a", "output_len": [1]},
        {"prompt": "a", "output_len": 1e300},
        {"prompt": "a", "output_len": 1, "timestamp": "x"},
        {"messages": [5], "output_len": 1},
        {"messages": [{"role": "user", "content": [1]}], "output_len": 1},
        {"conversations": [{"value": 5}], "output_len": 1},
    ],
)
async def test_a_damaged_entry_is_named(tmp_path: Path, row: object):
    path = write(tmp_path, [{"prompt": "a", "output_len": 1}, row])
    with pytest.raises(ValueError, match=r"load\.jsonl, entry 2: "):
        await lines(path, ALL, 0, count)


@pytest.mark.parametrize("row", [[], 5, [5], [{"messages": [{"role": "user", "content": 5}]}]])
def test_a_damaged_conversation_is_named(tmp_path: Path, row: object):
    path = tmp_path / "agentic.json"
    path.write_bytes(orjson.dumps({"conversations": [row]}))
    with pytest.raises(ValueError, match=r"agentic\.json, conversation 1: "):
        agentic(path, ALL, 0, 0)
