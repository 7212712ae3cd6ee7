"""Questions to the scheduler find their answers and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from treadle.srt.errors import WorkerLost
from treadle.srt.messages import Done
from treadle.srt.tokenizer.replies import Replies


async def test_answers_find_their_question_and_nothing_is_kept():
    replies = Replies()
    (one, first), (two, second) = replies.expect(), replies.expect()
    replies.answer(two, Done(two, True, "b"))
    replies.answer(one, Done(one, True, "a"))
    replies.answer(99, Done(99, True, "nobody asked"))
    assert (await first).message == "a"
    assert (await second).message == "b"
    await asyncio.sleep(0)
    assert replies._waiting == {}


async def test_cancelled_and_failed_questions_are_forgotten():
    replies = Replies()
    (one, first), (_, second) = replies.expect(), replies.expect()
    first.cancel()
    replies.answer(one, Done(one, True, "late"))
    replies.fail(WorkerLost("gone"))
    with pytest.raises(WorkerLost):
        await second
    await asyncio.sleep(0)
    assert replies._waiting == {}
