"""Batches on the device: the host's, with what only the device knows; and the padded form of steps
that a graph runs.
"""

from __future__ import annotations

from array import array

import torch

from test.srt.worker.test_mapping import KINDS, PAGE, plan, table
from treadle.srt.messages import StepPlan
from treadle.srt.worker.device_batch import DecodeRows, DeviceSlots, decode_batch, place
from treadle.srt.worker.mapping import build_batch
from treadle.srt.worker.transfer import upload

CPU = torch.device("cpu")


def device_slots(hits: dict[int, tuple[int, int]]) -> DeviceSlots:
    slots = DeviceSlots.of(table(hits), CPU)
    slots.last_token[:] = torch.arange(8) * 7
    return slots


def test_batch_is_the_hosts_with_the_ids_that_are_on_the_device():
    slots = device_slots({1: (40, 2)})
    start = int(slots.host.floor[1])
    step = plan((1, start, 40, 45, 0), (3, 9, 9, 10, 1))
    want = build_batch(step, table({1: (40, 2)}), PAGE)
    got = place(build_batch(step, slots.host, PAGE), slots)
    assert torch.equal(got.token_ids, want.token_ids)
    assert int(got.token_ids[-1]) == 21
    assert got.page_table is slots.page_table
    for one, other in zip(got.layers, want.layers, strict=True):
        assert torch.equal(one.positions, other.positions)
        assert torch.equal(one.page_dst, other.page_dst)
        assert torch.equal(one.paged_runs, other.paged_runs)
        assert torch.equal(one.window_runs, other.window_runs)
        kept = [x.keep if x.keep is not None else torch.empty(0) for x in (one, other)]
        assert torch.equal(*kept)
    shared = [x is y for x, y in zip(want.layers, want.layers[1:], strict=False)]
    assert [x is y for x, y in zip(got.layers, got.layers[1:], strict=False)] == shared


def test_step_of_single_sampled_rows_can_be_captured_and_no_other():
    slots = device_slots({1: (40, 2)})

    def rows(step: StepPlan) -> DecodeRows | None:
        return DecodeRows.of(build_batch(step, slots.host, PAGE))

    decode = rows(plan((3, 9, 9, 10, 1), (5, 0, 0, 1, 1)))
    assert decode is not None and decode.count == 2
    assert rows(plan((3, 9, 9, 10, 1), (5, 0, 0, 1, 0))) is None  # one is not sampled
    assert rows(plan((3, 9, 9, 11, 1))) is None
    assert rows(plan((1, 38, 40, 39, 1))) is None  # replays
    assert rows(StepPlan(1, array("i"), array("i"))) is None


def test_padding_rows_are_of_slot_0_and_see_themselves():
    slots = device_slots({})
    step = plan((3, 9, 9, 10, 1), (5, 0, 0, 1, 1))
    decode = DecodeRows.of(build_batch(step, slots.host, PAGE))
    assert decode is not None
    got = decode_batch(upload(list(decode.padded(5)), CPU), len(KINDS), slots)
    rows = got.layers[0]
    assert got.token_ids.tolist() == [21, 35, 0, 0, 0]
    assert rows.positions.tolist() == [9, 0, 0, 0, 0]
    assert rows.page_dst.tolist() == [302 * PAGE + 1, 500 * PAGE, -1, -1, -1]
    assert rows.paged_runs[2:].tolist() == [[0, i, 1, 0] for i in (2, 3, 4)]
    assert rows.window_runs[2:].tolist() == [[0, i, 1, i, 1, 0, 0] for i in (2, 3, 4)]
    assert len(got.layers) == len(KINDS)
