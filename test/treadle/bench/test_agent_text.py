"""Prompts of one session, as ids and as messages."""

from __future__ import annotations

import pytest

from treadle.bench.agent_text import SessionText
from treadle.bench.asks import Message, Reading
from treadle.bench.traces import Session, Turn
from treadle.bench.vocabulary import WORDS, Vocabulary

FIRST = Turn(0.0, 6, 2, -1, 0, 0, ((0, 0, 8),))
NEXT = Turn(1.0, 12, 3, 0, 8, 1, ((0, 0, 8), (1, 8, 15)))
BACK = Turn(2.0, 9, 1, 0, 4, 2, ((0, 0, 4), (2, 4, 10)))
LAST = Turn(3.0, 16, 1, 1, 15, 3, ((0, 0, 8), (1, 8, 15), (3, 15, 17)))
SESSION = Session("s", (FIRST, NEXT, BACK, LAST))
VOCABULARY = Vocabulary(WORDS, tuple(range(100, 100 + len(WORDS))), (7,), 1.0)


def text(*, is_chat: bool = False, is_live: bool = True, copy: int = 1) -> SessionText:
    return SessionText(SESSION, copy, VOCABULARY, is_chat=is_chat, is_live=is_live)


def ids(one: SessionText, turn: Turn) -> list[int]:
    return [int(token) for token in one.prompt(turn)]  # type: ignore[arg-type]


def said(*ids: int) -> Reading:
    return Reading(((0.1, len(ids)),), "live words", ids, 0, len(ids))


def test_outputs_stand_where_the_trace_has_them():
    one = text()
    first = ids(one, FIRST)
    one.note(FIRST, said(1, 2))
    second = ids(one, NEXT)
    one.note(NEXT, said(3, 4, 5))
    assert len(first) == 6 and first[0] == 7  # what the model wants before every text
    assert second[:8] == [*first, 1, 2] and len(second) == 12
    assert ids(one, LAST)[:15] == [*second, 3, 4, 5]
    assert ids(one, BACK)[:4] == first[:4]


def test_turns_that_were_not_played_are_spelled():
    assert text().prompt(NEXT)[:6] == text().prompt(FIRST)
    recorded = text(is_live=False)
    before = recorded.prompt(NEXT)
    recorded.note(FIRST, said(1, 2))
    assert recorded.prompt(NEXT) == before


def test_copies_share_the_prefix_only():
    one, other = text(copy=1).prompt(LAST), text(copy=2).prompt(LAST)
    assert one[0] == other[0] == 7 and one[1] != other[1]


def test_a_server_must_send_ids_to_go_on_from():
    with pytest.raises(ValueError, match="--replies recorded"):
        text().note(FIRST, Reading(((0.1, 1),), "words"))


def test_messages_alternate_and_hold_what_was_said():
    one = text(is_chat=True)
    one.note(FIRST, said(1, 2))
    messages = one.prompt(NEXT)
    assert isinstance(messages, tuple)
    assert [m.role for m in messages] == ["user", "assistant", "user"]
    assert messages[1] == Message("assistant", "live words")
    assert [len(m.content.split()) for m in messages] == [6, 2, 4]
    spelled = text(is_chat=True, is_live=False).prompt(NEXT)
    assert isinstance(spelled, tuple) and spelled[0] == messages[0]
    assert spelled[1] != messages[1]
