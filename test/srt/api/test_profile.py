"""The routes of profiles."""

from __future__ import annotations

import pytest

from test.serving import Bench
from treadle.srt.profiling import ProfileOptions


async def test_options_reach_the_engine_and_stop_has_none(bench: Bench):
    body = {"output_dir": "/d", "num_steps": 3, "profile_id": "me", "record_shapes": True}
    answer = await bench.post("/start_profile", {**body, "activities": ["CPU", "GPU"]})
    assert answer.json() == {"success": True, "message": "there"}
    assert (await bench.client.post("/stop_profile")).status_code == 200
    assert bench.engine.profiles == [ProfileOptions("/d", "me", 3, False, True), None]


async def test_an_empty_body_has_defaults(bench: Bench):
    assert (await bench.client.post("/start_profile")).status_code == 200
    (options,) = bench.engine.profiles
    assert options.folder.endswith("treadle-profile") and options.num_steps == 0


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"num_steps": 0}, 400, "num_steps"),
        ({"profile_id": "../x"}, 400, "profile_id"),
        ({"activities": ["MEM"]}, 501, "activities"),
        ({"start_step": 3}, 501, "start_step"),
        ({"profile_by_stage": True}, 501, "profile_by_stage"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    bench: Bench, body: dict[str, object], status: int, word: str
):
    answer = await bench.post("/start_profile", body)
    assert answer.status_code == status
    assert word in answer.json()["message"]
    assert bench.engine.profiles == []


async def test_a_refusal_of_the_engine_is_400(bench: Bench):
    bench.engine.is_profilable = False
    assert (await bench.client.post("/stop_profile")).status_code == 400
