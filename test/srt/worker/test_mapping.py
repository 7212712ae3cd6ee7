"""Plan -> batch: positions to pages, and the row schedule of mixed steps."""

from __future__ import annotations

from array import array

import numpy as np

from treadle.srt.cache.replay import ReplaySchedule
from treadle.srt.layers.batch import LayerRows
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.model_config import LayerKind
from treadle.srt.worker.mapping import build_batch
from treadle.srt.worker.state import SlotTable

PAGE = 4
KINDS = tuple(LayerKind.WINDOW if x == "s" else LayerKind.GLOBAL for x in "sgssg")
WINDOW = 8


def table(hits: dict[int, tuple[int, int]]) -> SlotTable:
    """Slots with pages slot*100, slot*100+1, ..; `hits`: slot -> (H, slope)."""
    slots = SlotTable.allocate(8, 64, len(KINDS))
    for slot in range(1, 8):
        slots.update_pages(PageUpdate(slot, 0, array("i", range(slot * 100, slot * 100 + 64))))
        slots.last_token[slot] = slot * 7
    for slot, (hit, slope) in hits.items():
        schedule = ReplaySchedule.staircase(KINDS, WINDOW, slope, 1)
        floor = schedule.entry_start(0, hit)
        params = SamplingParams(max_new_tokens=1)
        slots.reset(SlotReset(slot, floor, hit, slope, 1, 60, 0, params), schedule)
    return slots


def plan(*spans: tuple[int, int, int, int, int]) -> StepPlan:
    data, ids = array("i"), array("i")
    for span in spans:
        data.extend(span)
        one_row = span[3] - span[1] == 1
        ids.extend([-1] if one_row else range(span[1], span[3]))
    return StepPlan(1, data, ids)


def owners(rows: LayerRows) -> dict[int, list[int]]:
    """slot -> positions entering, from the window runs."""
    positions = rows.positions.tolist()
    return {r[0]: positions[r[1] : r[1] + r[2]] for r in rows.window_runs.tolist()}


def leaving(rows: LayerRows) -> dict[int, list[int]]:
    positions = rows.out_positions.tolist()
    return {r[0]: positions[r[1] : r[1] + r[2]] for r in rows.paged_runs.tolist()}


def test_step_without_replay_shares_rows_between_layers():
    batch = build_batch(plan((1, 5, 5, 6, 1), (2, 0, 0, 9, 0)), table({}), PAGE)
    assert len({id(x) for x in batch.layers[:-1]}) == 1
    assert batch.layers[0].keep is None
    assert owners(batch.layers[0]) == {1: [5], 2: list(range(9))}


def test_decode_only_step_has_one_row_set_for_all_layers():
    batch = build_batch(plan((1, 5, 5, 6, 1), (2, 8, 8, 9, 1)), table({}), PAGE)
    assert len({id(x) for x in batch.layers}) == 1
    assert batch.layers[-1].keep is None


def test_unknown_token_is_the_last_sampled_one():
    batch = build_batch(plan((3, 5, 5, 6, 1), (2, 0, 0, 3, 0)), table({}), PAGE)
    assert batch.token_ids.tolist() == [21, 0, 1, 2]


def test_only_sampled_rows_leave_the_last_layer():
    batch = build_batch(plan((1, 5, 5, 6, 1), (2, 0, 0, 9, 0), (3, 0, 0, 7, 1)), table({}), PAGE)
    assert leaving(batch.layers[-1]) == {1: [5], 3: [6]}
    assert owners(batch.layers[-1]) == {1: [5], 2: list(range(9)), 3: list(range(7))}


def test_replayed_rows_write_no_page_and_new_rows_write_theirs():
    """B6."""
    batch = build_batch(plan((2, 24, 32, 40, 1)), table({2: (32, 0)}), PAGE)
    rows = batch.layers[0]
    expected = [-1] * 8 + [(200 + p // PAGE) * PAGE + p % PAGE for p in range(32, 40)]
    assert rows.page_dst.tolist() == expected


def test_rows_enter_and_leave_by_the_schedule_of_their_slot():
    """B18, B39, B40: two hits of different H and slope, a cold prompt and a decode in one step."""
    hits = {2: (32, 2), 4: (48, 0)}
    slots = table(hits)
    spans = (
        (1, 5, 5, 6, 1),
        (2, 32 - 12, 32, 40, 1),
        (4, 40, 48, 52, 1),
        (5, 0, 0, 6, 1),
    )
    batch = build_batch(plan(*spans), slots, PAGE)
    for layer, rows in enumerate(batch.layers[:-1]):
        got_in, got_out = owners(rows), leaving(rows)
        for slot, (hit, slope) in hits.items():
            schedule = ReplaySchedule.staircase(KINDS, WINDOW, slope, 1)
            end = {2: 40, 4: 52}[slot]
            assert got_in[slot] == list(range(schedule.entry_start(layer, hit), end))
            assert got_out[slot] == list(range(schedule.exit_start(layer, hit), end))
        assert got_in[1] == got_out[1] == [5]
        assert got_in[5] == got_out[5] == list(range(6))


def test_layer_puts_out_exactly_what_the_next_takes_in():
    batch = build_batch(plan((2, 20, 32, 40, 1), (5, 0, 0, 6, 1)), table({2: (32, 2)}), PAGE)
    for lower, upper in zip(batch.layers, batch.layers[1:], strict=False):
        assert lower.out_positions.tolist() == upper.positions.tolist()


def test_floor_is_the_first_row_the_layer_below_put_out():
    """B40."""
    batch = build_batch(plan((2, 20, 32, 40, 1)), table({2: (32, 2)}), PAGE)
    schedule = ReplaySchedule.staircase(KINDS, WINDOW, 2, 1)
    for layer, rows in enumerate(batch.layers):
        assert rows.window_runs[0, 6] == schedule.entry_start(layer, 32)


def test_split_replay_keeps_floor_and_schedule():
    """B16: the second chunk of an exact replay starts inside it."""
    slots = table({2: (40, 7)})
    schedule = ReplaySchedule.staircase(KINDS, WINDOW, 7, 1)
    floor = schedule.entry_start(0, 40)
    first = build_batch(plan((2, floor, 40, 32, 0)), slots, PAGE)
    second = build_batch(plan((2, 32, 40, 44, 1)), slots, PAGE)
    for layer in range(len(KINDS) - 1):
        start = schedule.entry_start(layer, 40)
        got = owners(first.layers[layer]).get(2, []) + owners(second.layers[layer])[2]
        assert got == list(range(start, 44))
        assert second.layers[layer].window_runs[0, 6] == start
    assert (first.layers[0].page_dst == -1).all()


def test_rows_are_counted_per_layer():
    batch = build_batch(plan((2, 20, 32, 40, 1)), table({2: (32, 2)}), PAGE)
    assert batch.layer_rows == tuple(len(x.positions) for x in batch.layers)
    assert batch.layer_rows[0] > batch.layer_rows[-1]


def test_building_a_batch_changes_no_slot():
    slots = table({2: (32, 2)})
    entry, pages, last = slots.entry.copy(), slots.page_table.copy(), slots.last_token.copy()
    build_batch(plan((2, 20, 32, 40, 1)), slots, PAGE)
    assert np.array_equal(entry, slots.entry)
    assert np.array_equal(pages, slots.page_table)
    assert np.array_equal(last, slots.last_token)
