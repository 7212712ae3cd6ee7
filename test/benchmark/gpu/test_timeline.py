"""What a profile of a few steps says, on a trace that the test writes."""

from __future__ import annotations

import pytest
from benchmark.gpu.timeline import figures, merged, read, step_seconds

from test.srt.test_metrics import COUNTERS, FACTS, GAUGES, busy
from treadle.srt.step_times import StepTimes


def event(name: str, category: str, start: float, length: float) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length}


def host(name: str, start: float, length: float) -> dict[str, object]:
    return event(f"treadle.{name}", "user_annotation", start, length)


TRACE: dict[str, object] = {
    "traceEvents": [
        *(host(f"step {i}", 100 * i, 40) for i in range(4)),
        *(host("sample", 100 * i + 30, 10) for i in range(4)),
        *(host("batch", 100 * i, 5 + i) for i in range(4)),
        *(host("forward", 100 * i + 10, 20) for i in range(4)),
        event("gemm", "kernel", 20, 100),
        event("copy", "gpu_memcpy", 110, 30),
        event("gemm", "kernel", 150, 350),
        event("aten::mm", "cpu_op", 0, 500),
        {"ph": "i", "name": "treadle.step 9", "cat": "user_annotation"},
    ]
}


def test_idle_is_what_no_kernel_or_copy_covers():
    found = figures(read(TRACE))
    assert found["steps"] == 3 and found["step_us"] == 100
    assert found["device_busy_us"] == pytest.approx((120 + 150) / 3)
    assert found["idle_share"] == pytest.approx(0.1)


def test_a_launch_is_hidden_while_the_device_works():
    found = figures(read(TRACE))
    assert found["launch_us"] == 40
    assert found["hidden_share"] == pytest.approx((20 + 40 + 40) / 120)
    assert (found["batch_us"], found["forward_us"], found["sample_us"]) == (6.5, 20, 10)


def test_overlapping_spans_count_once():
    assert merged([(5, 9), (0, 4), (3, 6), (20, 21)]) == [(0, 9), (20, 21)]


def test_phases_are_read_from_the_metrics_page():
    times = StepTimes()
    for step in (1, 2):
        times.planned(step, 0.0, 0.25)
        times.answered(step, 1.0, 0.5, 0.125)
    page = busy().render({**COUNTERS, **times.counters()}, GAUGES, FACTS).decode()
    assert step_seconds(page) == {
        "plan": (2.0, 0.5), "wait": (2.0, 0.25), "run": (2.0, 1.0), "sample": (2.0, 0.25),
    }  # fmt: skip
