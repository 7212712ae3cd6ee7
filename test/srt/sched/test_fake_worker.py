"""The fake worker finds broken plans: one test per rule that it is relied upon to check."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from test.fake_model import FakeModel, PlanError
from test.fakes import FakeWorker
from treadle.srt.messages import FROM_DEVICE, PageUpdate, SamplingParams, SlotReset, StepPlan

MODEL = FakeModel(stop_rate=0.0)
PARAMS = SamplingParams(max_new_tokens=9, seed=1)


def reset(slot: int = 1, *, floor: int = 0, hit: int = 0, prompt: int = 10) -> SlotReset:
    return SlotReset(slot, floor, hit, 0, 1, prompt, 0, PARAMS)


def plan(
    step: int,
    spans: list[tuple[int, int, int, int, int]],
    tokens: list[int],
    *,
    resets: tuple[SlotReset, ...] = (),
    pages: dict[int, tuple[int, list[int]]] | None = None,
) -> StepPlan:
    """`pages`: slot -> (first index, page ids)."""
    updates = tuple(
        PageUpdate(slot, first, array("i", ids)) for slot, (first, ids) in (pages or {}).items()
    )
    data = array("i", [value for span in spans for value in span])
    return StepPlan(step, data, array("i", tokens), resets, updates)


def worker(window: int = 0, tree: tuple[int, ...] = (), max_rows: int = 99) -> FakeWorker:
    return FakeWorker(MODEL, 4, 20, 4, window=window, max_rows=max_rows, in_tree=lambda: set(tree))


PROMPT = list(range(10))
FIRST = plan(0, [(1, 0, 0, 10, 1)], PROMPT, resets=(reset(),), pages={1: (0, [3, 4, 5])})


def after_first(window: int = 0) -> FakeWorker:
    made = worker(window)
    made.execute(FIRST)
    return made


def test_good_plans_give_the_text_of_the_oracle():
    made = after_first(window=4)
    text = [made.slots[1].last_token]
    for step in range(1, 3):
        row = 9 + step
        text.extend(made.execute(plan(step, [(1, row, row, row + 1, 1)], [FROM_DEVICE])).token_ids)
    assert text == MODEL.oracle(PROMPT, PARAMS, 99).token_ids[:3]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (plan(1, [(1, 11, 11, 12, 1)], [FROM_DEVICE]), "does not start at row 10"),
        (plan(1, [(1, 10, 9, 11, 1)], [FROM_DEVICE]), "write floor"),
        (plan(1, [(1, 10, 10, 13, 1)], [1, 2, 3]), "no page"),
        (plan(1, [(2, 0, 0, 1, 1)], [1]), "before its reset"),
        (plan(1, [], []), "empty plan"),
        (plan(1, [(1, 10, 10, 12, 1)], [1, FROM_DEVICE]), "device token in a longer span"),
        (plan(1, [(1, 10, 10, 11, 1)], [1], pages={1: (0, [0])}), "page 0"),
        (plan(1, [(1, 10, 10, 11, 1)], [1], pages={1: (4, [7])}), "gap"),
        (plan(1, [(1, 10, 10, 11, 1)], [1], pages={1: (0, [9])}), "page 9 is stale"),
        (plan(1, [(1, 10, 10, 11, 1)], [1], pages={1: (2, [9])}), "last page is stale"),
        (plan(0, [(1, 10, 10, 11, 1)], [1]), "ascend"),
    ],
)
def test_broken_plans_are_refused(bad: StepPlan, message: str):
    with pytest.raises(PlanError, match=message):
        after_first().execute(bad)


def test_pages_of_the_tree_are_not_written():
    with pytest.raises(PlanError, match="of the tree"):
        worker(tree=(4,)).execute(FIRST)


def test_the_row_budget_holds():
    with pytest.raises(PlanError, match="10 rows"):
        worker(max_rows=9).execute(FIRST)


def test_a_hit_on_another_prefix_is_found_by_its_replay():
    made = after_first()
    hit = reset(2, floor=4, hit=8)
    other = plan(
        1, [(2, 4, 8, 10, 1)], [4, 5, 6, 0, 8, 9], resets=(hit,), pages={2: (0, [3, 4, 9])}
    )
    with pytest.raises(PlanError, match="another prefix"):
        made.execute(other)


def test_a_hit_on_another_prefix_is_found_by_the_history():
    made = after_first()
    params = replace(PARAMS, presence_penalty=1.0)
    hit = replace(reset(2, floor=8, hit=8), sampling=params, history=array("i", [7] * 10))
    other = plan(1, [(2, 8, 8, 10, 1)], [8, 9], resets=(hit,), pages={2: (0, [3, 4, 9])})
    with pytest.raises(PlanError, match="hit differs at position 0"):
        made.execute(other)


def test_a_missing_reset_leaves_the_window_of_another_request():
    made = after_first(window=4)
    made.slots[1].ring[9 % 4] = (9, 12345)
    with pytest.raises(PlanError, match="lacks position 9"):
        made.execute(plan(1, [(1, 10, 10, 11, 1)], [FROM_DEVICE]))


def test_slots_are_not_reset_under_a_running_step():
    made = worker()
    made.submit(FIRST)
    with pytest.raises(PlanError, match="slot 1 is reset under a running step"):
        made.submit(replace(FIRST, step=1))


def test_pages_are_not_given_away_under_a_running_step():
    made = worker()
    made.submit(FIRST)
    thief = plan(1, [(2, 0, 0, 4, 0)], [1] * 4, resets=(reset(2),), pages={2: (0, [5])})
    with pytest.raises(PlanError, match="page 5 is reused under a running step"):
        made.submit(thief)


def test_sampling_before_the_last_known_token_is_found():
    early = plan(0, [(1, 0, 0, 8, 1)], PROMPT[:8], resets=(reset(),), pages={1: (0, [3, 4, 5])})
    with pytest.raises(PlanError, match="sampled at row 8 of 10 known"):
        worker().execute(early)
