"""A server that profiles itself during a load."""

from __future__ import annotations

from typing import Any

import pytest

from test.treadle.bench.fake_server import FakeServer
from test.treadle.bench.test_serving_run import SMALL, run
from treadle.bench.control import Unready


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", [{}, None]), ("--profile-num-steps 5 --profile-activities CPU GPU --profile-prefix a",
      [{"num_steps": 5, "activities": ["CPU", "GPU"], "profile_prefix": "a"}])],
)  # fmt: skip
async def test_the_server_profiles_the_load_and_not_the_warm_up(more: str, expected: list[Any]):
    server = FakeServer()
    await run(server, f"{SMALL} --profile {more}")
    assert server.profiles == expected


async def test_what_a_server_does_not_profile_is_told():
    with pytest.raises(Unready, match="501.*profile_by_stage is not supported"):
        await run(FakeServer(), f"{SMALL} --profile --profile-by-stage")
    with pytest.raises(ValueError, match="--profile-num-steps needs --profile"):
        await run(FakeServer(), f"{SMALL} --profile-num-steps 3")
