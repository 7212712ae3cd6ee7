"""Programs through a real router before three replicas: each branch stays where its prefix is."""

from __future__ import annotations

import orjson

import treadle as tr
from test.treadle.router.fake_replica import Seen, Wire, answer
from test.treadle.router.harness import Bench, routing

META = {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0, "finish_reason": None}


async def replica(seen: Seen, wire: Wire) -> None:
    """Three ids for a text, and "42" for what follows it."""
    found: object = {"text": "42", "output_ids": [1, 2], "meta_info": META}
    if seen.path == "/tokenize":
        found = {"tokens": [[1, 2, 3]]}
    await answer(200, orjson.dumps(found))(seen, wire)


@tr.function
async def loop(s):
    s += "shared" + tr.gen("x")
    with s.fork(4) as forks:
        forks += lambda i: f"{i}" + tr.gen("y")
    await s.read("y")
    s += "on" + tr.gen("z")
    await s.read("z")


def generations(bench: Bench) -> list[list[str]]:
    """By replica: the sessions that were served there."""
    return [
        [seen.headers["x-session-id"] for seen in each.seen if seen.path == "/generate"]
        for each in bench.replicas
    ]


async def test_a_run_and_its_forks_stay_on_one_replica():
    async with routing(replica, replica, replica) as bench:
        endpoint = tr.RuntimeEndpoint(f"http://127.0.0.1:{bench.port}")
        homes = set()
        for number in range(6):
            state = await loop.arun(backend=endpoint, session_id=f"run-{number}")
            assert state.error() is None
            served = [i for i, sessions in enumerate(generations(bench)) if sessions]
            assert len(served) == 1, generations(bench)
            assert len(generations(bench)[served[0]]) == 7  # 2 + 4, and the commit of the prefix
            homes.add(served[0])
            for each in bench.replicas:
                each.seen.clear()
        assert len(homes) > 1  # runs are spread
        await endpoint.aclose()
