"""Admission: hits, replays, budget, reservation, requests that share a prefix. Rules are cited."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel

from .conftest import Loop, MakeLoop

MODEL = FakeModel(stop_rate=0.0)


def warm(loop: Loop, tokens: int = 40) -> list[int]:
    """Fill the tree with a prompt."""
    loop.add("warm", range(tokens), max_new_tokens=0)
    loop.drain()
    return list(range(tokens))


def test_a_hit_never_covers_the_last_prompt_token(make_loop: MakeLoop):
    loop = make_loop(model=MODEL)  # T10
    prompt = warm(loop)
    loop.add("again", prompt)
    loop.drain()
    assert loop.done["again"].usage.cached_tokens == 36


def test_a_hit_with_windows_begins_at_its_replay(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, overlap=False)  # B14, B18, B37
    prompt = [*warm(loop), *range(90, 100)]
    loop.add("a", prompt, max_new_tokens=2)
    loop.plan()
    longest = loop.cache.rule.longest_run(loop.cache.rule.default)
    assert loop.spans() == [(1, 40 - longest, 40, 50, 1)]
    (reset,) = loop.plans[-1].resets
    assert (reset.floor, reset.hit, reset.depth) == (40 - longest, 40, 1)
    loop.drain()
    usage = loop.done["a"].usage
    assert (usage.cached_tokens, usage.replayed_tokens) == (40, longest)
    counters = loop.counters()
    assert counters["replay_requests{mode=bounded}"] == 1
    assert counters["replay_rows"] == longest
    assert counters["fresh_rows"] == 40 + 10
    assert counters["realtime_tokens{mode=prefill_cache}"] == 40


def test_replay_rows_are_charged_and_a_bounded_replay_is_not_cut(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, chunk_tokens=24, overlap=False)  # B14, B15
    prompt = warm(loop)
    loop.add("cold", range(200, 217), max_new_tokens=1)
    loop.add("hit", [*prompt, 99], max_new_tokens=1)
    loop.add("small", [98], max_new_tokens=1)
    longest = loop.cache.rule.longest_run(loop.cache.rule.default)
    assert longest == 8 > 24 - 17
    loop.plan()
    assert [span[3] - span[1] for span in loop.spans()] == [17]  # "small" does not overtake
    loop.commit()
    loop.plan()
    assert loop.spans()[0][1:4] == (40 - longest, 40, 41)


def test_a_request_that_waits_for_budget_is_first_in_the_next_step(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, chunk_tokens=24, overlap=False, policy="lof")  # B15
    prompt = warm(loop)
    loop.add("cold", range(200, 217), max_new_tokens=9)
    loop.add("hit", [*prompt, 99], max_new_tokens=2)
    loop.step()
    loop.add("longer", range(300, 320), max_new_tokens=9)
    loop.plan()
    assert [span[3] for span in loop.spans()][1] == 41


def test_a_bounded_replay_that_decode_rows_leave_no_room_for_is_cut(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, chunk_tokens=12, overlap=False)  # B14 would hang
    longest = loop.cache.rule.longest_run(loop.cache.rule.default)
    assert longest + 4 == 12
    prompt = warm(loop)
    loop.add("decoding", range(200, 203), max_new_tokens=40)
    loop.step()
    loop.add("hit", [*prompt, *range(90, 99)], max_new_tokens=3)
    loop.drain()
    rows = [span[1:] for i in range(len(loop.plans)) for span in loop.spans(i) if span[0] == 2]
    assert rows[0] == (40 - longest, 40, 40, 0)
    assert len(loop.text["hit"]) == 3
    assert len(loop.text["decoding"]) == 40


def test_an_exact_replay_may_span_steps(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=3, mode="exact", chunk_tokens=8, overlap=False)  # B16
    prompt = warm(loop)
    loop.add("a", [*prompt, 99, 98], max_new_tokens=2)
    loop.drain()
    first = 40 - loop.cache.rule.longest_run(loop.cache.rule.default)
    spans = [span for i in range(len(loop.plans)) for span in loop.spans(i)]
    mine = spans[-5:]
    assert [span[1] for span in mine] == [first, 24, 32, 40, 42]
    assert [span[2] for span in mine] == [40, 40, 40, 40, 42]  # the write floor
    assert [span[4] for span in mine] == [0, 0, 0, 1, 1]
    assert sum(len(plan.resets) for plan in loop.plans) == 2
    assert loop.done["a"].usage.replayed_tokens == 40 - first


def test_modes_can_be_chosen_by_request(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2)
    prompt = [*warm(loop), 99]
    cached = {}
    for mode in ("off", "exact", "bounded"):
        loop.add(mode, prompt, replay_mode=mode, max_new_tokens=1)
        loop.drain()
        cached[mode] = loop.done[mode].usage.cached_tokens
    assert cached == {"off": 0, "exact": 40, "bounded": 40}


def test_requests_that_share_an_unseen_prefix_wait_for_the_first(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=256, overlap=False)  # T41
    system = list(range(60))
    for i in range(3):
        loop.add(str(i), [*system, 100 + i], max_new_tokens=4)
    loop.add("other", range(200, 240), max_new_tokens=4)
    loop.plan()
    assert [span[3] for span in loop.spans()] == [61, 40]  # the unrelated one is not held back
    loop.commit()
    loop.plan()
    assert len(loop.spans()) == 4
    loop.drain()
    assert [loop.done[str(i)].usage.cached_tokens for i in range(3)] == [0, 60, 60]


def test_a_short_common_prefix_holds_nobody_back(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=256)  # T41: 32 tokens are not more than 32
    for i in range(3):
        loop.add(str(i), [*range(32), 100 + i])
    loop.plan()
    assert len(loop.spans()) == 3


def test_namespaces_do_not_share(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=256)  # T26
    loop.add("a", range(60), namespace=(("salt", "x"),))
    loop.add("b", range(60), namespace=(("lora", "x"),))
    loop.plan()
    assert len(loop.spans()) == 2
    loop.drain()
    assert loop.done["b"].usage.cached_tokens == 0


def test_pages_that_running_requests_will_need_are_kept_for_them(make_loop: MakeLoop):
    options = {"model": MODEL, "num_pages": 26, "max_running": 2, "overlap": False}
    careful, careless = make_loop(**options), make_loop(**options, conservativeness=0.01)
    for loop in (careful, careless):  # T24: of 25 pages "a" has 10 and is expected to take 7
        loop.add("a", range(40), max_new_tokens=40)
        loop.add("b", range(100, 140), max_new_tokens=1)
        loop.step()
    assert careful.gauges()["running"] == 1
    assert careless.gauges()["running"] == 2


def test_an_idle_pool_admits_what_fits_whatever_is_expected(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, num_pages=11, conservativeness=9.0)
    loop.add("a", range(36), max_new_tokens=200)
    assert loop.plan() is not None


def test_a_failed_admission_changes_nothing(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, num_pages=26, max_running=3, overlap=False)  # B30
    prompt = warm(loop, 40)
    loop.add("a", range(200, 240), max_new_tokens=40)
    loop.step()
    before = loop.gauges()
    loop.add("b", [*prompt, *range(90, 120)], max_new_tokens=40)
    loop.plan()
    loop.commit()
    after = loop.gauges()
    assert after["waiting"] == 1
    names = ("pages{state=protected}", "window_slots{state=taken}", "tree_nodes")
    assert [before[name] for name in names] == [after[name] for name in names]


@pytest.mark.parametrize("windows", [0, 2])
def test_two_equal_prompts_at_once_and_a_third_on_freed_pages(make_loop: MakeLoop, windows: int):
    loop = make_loop(model=MODEL, windows=windows, num_pages=40)  # section 7, test 6; T14
    prompt = list(range(30))  # short of the 33 tokens that would hold the second back
    loop.add("a", prompt, max_new_tokens=20)
    loop.add("b", prompt, max_new_tokens=20)
    loop.plan()
    loop.plan()  # the step ahead still has the second one's own pages
    loop.commit()
    assert loop.counters()["dedup_pages"] == 7
    assert loop.gauges()["pages{state=quarantine}"] == 7
    loop.add("c", range(100, 150), max_new_tokens=20)
    loop.drain()
    assert loop.text["a"] == loop.text["b"]
    for rid, tokens in (("a", prompt), ("c", range(100, 150))):
        sampling = loop.add(f"{rid}2", tokens, max_new_tokens=20).sampling
        assert loop.text[rid] == MODEL.oracle(tokens, sampling, 256).token_ids
    loop.drain()
    assert loop.text["c"] == loop.text["c2"]


def test_without_a_prefix_cache_nothing_is_adopted_or_published(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, prefix_cache=False)
    prompt = warm(loop)
    loop.add("a", prompt)
    loop.drain()
    assert loop.done["a"].usage.cached_tokens == 0
    assert loop.tree_pages() == set()
