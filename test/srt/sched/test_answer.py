"""What a result says of each span, and what accepted tokens are worth."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from test.fake_model import FakeModel
from test.srt.sched.conftest import STOP, Loop, MakeLoop
from treadle.srt.messages import StepResult, TokenLogprob
from treadle.srt.sched.answer import read_spans


def ints(*values: int) -> array[int]:
    return array("i", values)


def test_result_without_counts_has_one_token_per_span():
    result = StepResult(1, ints(5, 6, 7), bad=(2,))
    found = list(read_spans(result, 1))
    assert [list(x.token_ids) for x in found] == [[6], [7]]
    assert [x.is_bad for x in found] == [False, True]
    assert all(not x.drafts for x in found)


def test_result_with_counts_is_cut_by_span():
    told = TokenLogprob(-1.0)
    result = StepResult(
        1,
        ints(5, 6, 7, 8),
        (None, None, told, told),
        counts=ints(2, 2),
        drafts=ints(1, 2, 3),
        draft_counts=ints(0, 3),
        sure_counts=ints(0, 2),
    )
    first, second = read_spans(result, 0)
    assert (list(first.token_ids), first.logprobs, list(first.drafts)) == ([5, 6], (), [])
    assert (list(second.token_ids), second.logprobs) == ([7, 8], (told, told))
    assert (list(second.drafts), second.num_sure) == ([1, 2, 3], 2)


def test_drafts_of_a_head_that_says_nothing_of_them_are_sure():
    result = StepResult(1, ints(5), counts=ints(1), drafts=ints(1, 2), draft_counts=ints(2))
    (only,) = read_spans(result, 0)
    assert only.num_sure == 2


@pytest.mark.parametrize(("temperature", "wanted"), [(0.0, [9, 4]), (1.0, [1, 1])])
def test_unsure_drafts_of_greedy_requests_are_looked_up(
    make_loop: MakeLoop, temperature: float, wanted: list[int]
):
    """A drawn token is verified by what its draft was drawn from, so that draft must stay."""
    loop = make_loop(draft_tokens=2, model=FakeModel(stop_rate=0.0))
    loop.add("a", [7, 8, 9, 4, 5, 6, 7], temperature=temperature)
    loop.plan()
    loop.run_worker()
    result = replace(loop.results.popleft(), token_ids=ints(8), drafts=ints(1, 1))
    loop.results.append(replace(result, draft_counts=ints(2), sure_counts=ints(0)))
    loop.commit()
    plan = loop.scheduler.plan(loop.now)
    assert plan is not None and list(plan.token_ids[1:]) == wanted


def drafted(make_loop: MakeLoop, **options: object) -> tuple[Loop, Loop]:
    """The same loop without and with drafts."""
    return make_loop(**options), make_loop(draft_tokens=5, **options)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20])
def test_token_limit_cuts_accepted_drafts(make_loop: MakeLoop, limit: int):
    loops = drafted(make_loop, model=FakeModel(stop_rate=0.0))
    for loop in loops:
        loop.add("a", [1, 2, 3], max_new_tokens=limit)
        loop.drain()
    assert loops[0].text == loops[1].text
    assert len(loops[1].text["a"]) == limit
    assert loops[1].done["a"].finish.reason == "length"


def test_context_length_cuts_accepted_drafts(make_loop: MakeLoop):
    plain, spec = drafted(make_loop, context_len=20, model=FakeModel(stop_rate=0.0))
    for loop in (plain, spec):
        loop.add("a", [1, 2, 3], max_new_tokens=100)
        loop.drain()
    assert plain.text == spec.text and len(spec.text["a"]) == 17


@pytest.mark.parametrize("seed", range(8))
def test_first_stop_id_ends_a_request_whatever_was_accepted_after(make_loop: MakeLoop, seed: int):
    plain, spec = drafted(make_loop, model=FakeModel(stop_rate=0.15))
    for loop in (plain, spec):
        loop.add("a", [1, 2, 3], max_new_tokens=60, min_new_tokens=seed % 3, seed=seed)
        loop.drain()
    assert plain.text == spec.text
    assert plain.done["a"].finish == spec.done["a"].finish
    assert spec.text["a"][-1] == STOP or len(spec.text["a"]) == 60


def test_fewer_steps_give_the_same_text_and_count_what_was_accepted(make_loop: MakeLoop):
    plain, spec = drafted(make_loop, model=FakeModel(stop_rate=0.0))
    for loop in (plain, spec):
        for rid in "abc":
            loop.add(rid, [1, 2, ord(rid) % 9], max_new_tokens=40, top_logprobs=0)
        loop.drain()
    assert plain.text == spec.text
    assert len(spec.plans) < 0.6 * len(plain.plans)
    counters = spec.counters()
    assert counters["generation_tokens"] == 120
    accepted, spans = counters["spec_accepted_tokens"], counters["spec_verify_spans"]
    assert 1.5 < accepted / spans < counters["spec_draft_tokens"] / spans <= 5
    assert plain.counters()["spec_verify_spans"] == 0


def test_pages_of_rejected_drafts_are_never_published(make_loop: MakeLoop):
    """T13: the next turn finds accepted tokens only, and what it finds is right."""
    loop = make_loop(draft_tokens=5, model=FakeModel(stop_rate=0.0), windows=1, warm=2)
    loop.add("a", list(range(10)), max_new_tokens=23)
    loop.drain()
    loop.add("b", [*range(10), *loop.text["a"], 3], max_new_tokens=9)
    loop.drain()
    assert loop.done["b"].usage.cached_tokens == 32
    assert loop.worker.kept_windows == 1


def test_tight_budget_leaves_rows_for_prompts(make_loop: MakeLoop):
    """Drafts take what others need not."""
    loop = make_loop(draft_tokens=5, chunk_tokens=9, model=FakeModel(stop_rate=0.0))
    for rid in "abc":
        loop.add(rid, [1, 2, 3], max_new_tokens=30)
    loop.step()
    loop.add("late", list(range(40)), max_new_tokens=2)
    for _ in range(16):
        loop.step()
    assert "late" in loop.done
