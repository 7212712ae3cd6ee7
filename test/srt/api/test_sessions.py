"""Released sessions: what is read, and whom it concerns."""

from __future__ import annotations

import pytest

from test.serving import Bench, serving
from treadle.srt.config import ApiSection
from treadle.srt.messages import ReleaseSessions


def released(bench: Bench) -> list[ReleaseSessions]:
    return [message for message in bench.engine.sent if isinstance(message, ReleaseSessions)]


@pytest.mark.parametrize(("given", "sent"), [("a", ("a",)), (["a", "b"], ("a", "b"))])
async def test_the_engine_is_told_which(bench: Bench, given, sent):
    answer = await bench.post("/release_session", {"session_id": given})
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert released(bench) == [ReleaseSessions(sent)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "at least one"), ("", "at least one"), ([], "at least one"), (["a", ""], "at least"),
        (["a"] * 4097, "4097 names, at most 4096"), ("a" * 513, "longer than 512 characters"),
    ],
)  # fmt: skip
async def test_names_that_are_none_are_refused(bench: Bench, given, words):
    answer = await bench.post("/release_session", {"session_id": given})
    assert answer.status_code == 400 and words in answer.json()["message"]
    assert answer.json()["param"] == "session_id" and released(bench) == []


async def test_with_isolation_only_the_caller_s_own_are_released():
    async with serving(api=ApiSection(cache_isolation="per-key")) as bench:
        for key in ("one", "two"):
            headers = {"authorization": f"Bearer {key}"}
            body = {"session_id": "a"}
            await bench.client.post("/release_session", json=body, headers=headers)
    first, second = released(bench)
    assert first.owner[0][0] == second.owner[0][0] == "owner" and first.owner != second.owner
