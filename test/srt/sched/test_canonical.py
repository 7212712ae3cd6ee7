"""Canonical requests in the scheduler: where spans end, and what the worker is told (3.11, B35)."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel

from .conftest import MakeLoop
from .test_preempt import interrupt

MODEL = FakeModel(stop_rate=0.0)


def canonical(make_loop: MakeLoop, **options: object):
    base = {"model": MODEL, "windows": 2, "mode": "canonical", "grid": 32, "chunk_tokens": 64}
    return make_loop(**(base | options))


def test_rows_before_each_grid_point_are_replayed_with_windows_begun_anew(make_loop: MakeLoop):
    loop = canonical(make_loop)
    loop.add("a", range(70), max_new_tokens=1)
    loop.drain()
    assert [loop.spans(i)[0][1:] for i in range(3)] == [
        (0, 0, 32, 0),
        (24, 32, 64, 0),
        (56, 64, 70, 1),
    ]
    rewinds = [(r.slot, r.floor, r.hit) for plan in loop.plans for r in plan.rewinds]
    slot = loop.plans[0].resets[0].slot
    assert rewinds == [(slot, 24, 32), (slot, 56, 64)]


@pytest.mark.parametrize("length", [32, 33])
def test_a_point_is_a_row_of_the_prompt(make_loop: MakeLoop, length: int):
    loop = canonical(make_loop)
    loop.add("a", range(length), max_new_tokens=4)
    loop.drain()
    assert sum(len(plan.rewinds) for plan in loop.plans) == (length > 32)


def test_a_replay_that_reaches_over_an_earlier_point_is_not_begun_again(make_loop: MakeLoop):
    """Its start may be a grid point, and so may the end of a chunk inside it."""
    loop = canonical(make_loop, grid=4, slope=6, chunk_tokens=8)
    loop.add("a", range(30), max_new_tokens=2)
    loop.drain()
    rewinds = [r.hit for plan in loop.plans for r in plan.rewinds]
    assert rewinds == [4, 8, 12, 16, 20, 24, 28]
    assert any(r.floor % 4 == 0 for plan in loop.plans for r in plan.rewinds)


def test_resume_has_the_grid_of_the_prompt_only(make_loop: MakeLoop):
    """B35: sampled tokens were not run by the grid, so neither are they now, although another
    prompt has them and has published them."""
    loop = canonical(make_loop, overlap=False)
    sent = loop.add("a", range(40), max_new_tokens=60)
    text = MODEL.oracle(sent.prompt_ids, sent.sampling, 256).token_ids
    loop.add("b", [*range(40), *text], max_new_tokens=1)
    interrupt(loop, "a", 50)
    resumed = len(loop.plans)
    loop.drain()
    (reset,) = loop.plans[resumed].resets
    assert (reset.hit, reset.num_output > 32) == (32, True)
    assert not any(plan.rewinds for plan in loop.plans[resumed:])
    assert loop.text["a"] == text
    loop.add("c", [*range(40), *text], max_new_tokens=1)
    loop.plan()
    assert loop.plans[-1].resets[0].hit == 96


def test_usage_is_of_the_hit_and_counters_are_of_all_replayed_rows(make_loop: MakeLoop):
    """B37: 0 <= R <= H <= prompt - 1, also where a cold run replays."""
    loop = canonical(make_loop)
    for rid, cached, replayed in (("cold", 0, 0), ("warm", 64, 8)):
        loop.add(rid, range(100), max_new_tokens=2)
        loop.drain()
        usage = loop.done[rid].usage
        assert (usage.cached_tokens, usage.replayed_tokens) == (96 if cached else 0, replayed)
        assert usage.approx_generation == 3
    counters = loop.counters()
    assert counters["replay_rows"] == 3 * 8 + 8
    assert counters["fresh_rows"] == 100 + 4


def test_bounded_requests_report_how_many_approximations_lie_behind_them(make_loop: MakeLoop):
    """B34."""
    loop = make_loop(model=MODEL, windows=2)
    for turn, generation in enumerate((0, 1, 2)):
        loop.add(f"t{turn}", range(40 + 20 * turn), max_new_tokens=4)
        loop.drain()
        assert loop.done[f"t{turn}"].usage.approx_generation == generation
    loop.add("exact", range(100), max_new_tokens=4, replay_mode="exact")
    loop.drain()
    usage = loop.done["exact"].usage
    assert (usage.approx_generation, usage.cached_tokens) == (0, 40)
