"""Slot state: a reset replaces everything, a page update only what it names."""

from __future__ import annotations

from array import array

from treadle.srt.cache.replay import ReplaySchedule
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset
from treadle.srt.model_config import LayerKind
from treadle.srt.worker.state import SamplerSlot, SlotTable

KINDS = (LayerKind.WINDOW, LayerKind.GLOBAL, LayerKind.WINDOW)
PENALTY = SamplingParams(max_new_tokens=4, frequency_penalty=1.0)


def reset(slot: int, hit: int, **changes: object) -> SlotReset:
    fields: dict[str, object] = {
        "floor": max(0, hit - 10),
        "slope": 1,
        "depth": 1,
        "prompt_len": 3,
        "num_output": 0,
    }
    fields |= {"sampling": PENALTY} | changes
    return SlotReset(slot=slot, hit=hit, **fields)  # type: ignore[arg-type]


def test_reset_stores_the_rows_of_its_schedule():
    slots = SlotTable.allocate(3, 8, len(KINDS))
    schedule = ReplaySchedule.staircase(KINDS, 8, 1, 1)
    slots.reset(reset(1, 32), schedule)
    assert slots.entry[1].tolist() == [schedule.entry_start(i, 32) for i in range(3)]
    assert slots.exit[1].tolist() == [schedule.exit_start(i, 32) for i in range(3)]
    assert slots.floor[1] == 22
    slots.reset(reset(1, 0), None)
    assert not slots.entry[1].any()
    assert not slots.exit[1].any()


def test_page_update_writes_only_its_range():
    slots = SlotTable.allocate(3, 8, 1)
    slots.update_pages(PageUpdate(2, 0, array("i", [5, 6, 7])))
    slots.update_pages(PageUpdate(2, 1, array("i", [9])))
    assert slots.page_table[2].tolist() == [5, 9, 7, 0, 0, 0, 0, 0]
    assert not slots.page_table[1].any()
    assert slots.page_tensor[2, 1] == 9


def test_resume_counts_earlier_output_apart_from_the_prompt():
    """T43: penalties and the random position go on where they were."""
    history = array("i", [1, 2, 3, 7, 7])
    state = SamplerSlot.from_reset(reset(1, 0, num_output=2, history=history))
    assert state.prompt == {1, 2, 3}
    assert state.output == {7: 2}
    assert state.num_output == 2
    state.took(9)
    assert state.num_output == 3
    assert state.output == {7: 2, 9: 1}


def test_output_is_not_counted_when_no_penalty_needs_it():
    plain = SamplerSlot.from_reset(reset(1, 0, sampling=SamplingParams(max_new_tokens=4)))
    plain.took(9)
    assert not plain.output
