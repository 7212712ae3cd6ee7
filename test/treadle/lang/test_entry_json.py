"""Entries as JSON and back; whole runs are in test_trace."""

from __future__ import annotations

import orjson
import pytest

from treadle.lang.backend import Answer, AnswerRequest, ScoreRequest, Scores
from treadle.lang.choices import ChoiceScore
from treadle.lang.entry_json import entry_json, read_entry
from treadle.lang.ir import Logprobs
from treadle.lang.prompt import ChatPrompt, TextPrompt
from treadle.lang.recorder import Entry
from treadle.lang.sampling import Sampling
from treadle.lang.tools import ToolCall, ToolResult

CHAT = ChatPrompt(({"role": "user", "content": "Hi"},), "answer", ({"type": "function"},))


@pytest.mark.parametrize(
    ("kind", "asked", "told"),
    [
        (
            "generate",
            AnswerRequest(CHAT, Sampling(stop=["a"]), Logprobs(0, 2, True), "none"),
            [Answer("x", "r", (ToolCall("c", "f", "{}"),), {"n": 1})],
        ),
        (
            "select",
            ScoreRequest((TextPrompt("a"),), (TextPrompt("ab"),), True),
            Scores(
                (
                    ChoiceScore((1,), (-0.5,), (None,)),
                    ChoiceScore((0,), (-1.0,), texts=("a",)),
                ),
                {"n": 1},
            ),
        ),
        ("commit", TextPrompt("a"), {"n": 1}),
        ("tool", ToolCall("c", "f", "{}"), ToolResult("x", "timeout")),
    ],
)
def test_entries_survive_json(kind, asked, told):
    entry = Entry(kind, "b", "x", asked, 0.5, 1.5, told, "oops", True)
    read = read_entry(orjson.loads(orjson.dumps(entry_json(entry))))
    assert (read.asked, read.told) == (asked, told)
    assert entry_json(read) == entry_json(entry)
