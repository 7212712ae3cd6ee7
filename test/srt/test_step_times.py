"""Histograms of a step's parts."""

from __future__ import annotations

from treadle.srt.step_times import BOUNDS, PHASES, StepTimes


def bucket(counters: dict[str, float], phase: str, mark: str) -> float:
    return counters[f"step_seconds_bucket{{phase={phase},le={mark}}}"]


def test_wait_is_what_planning_running_and_sampling_leave():
    times = StepTimes()
    times.planned(7, 10.0, 10.5)
    times.answered(7, 12.0, run_s=1.0, sample_s=0.125)
    counters = times.counters()
    sums = [counters[f"step_seconds_sum{{phase={phase}}}"] for phase in PHASES]
    assert sums == [0.5, 0.375, 1.0, 0.125]
    assert bucket(counters, "plan", "0.25") == 0 and bucket(counters, "plan", "0.5") == 1


def test_buckets_count_all_that_is_no_more_than_their_bound():
    times = StepTimes()
    for step, seconds in enumerate((1e-5, 1e-4, 0.3, 100.0)):
        times.planned(step, 0.0, seconds)
        times.answered(step, seconds, 0.0, 0.0)
    counters = times.counters()
    assert [bucket(counters, "plan", x) for x in ("2.5e-05", "0.0001", "0.5", "10", "+Inf")] == [
        1, 2, 3, 3, 4,
    ]  # fmt: skip
    assert bucket(counters, "wait", "+Inf") == 4


def test_a_step_that_ran_on_two_clocks_never_waits_less_than_nothing():
    times = StepTimes()
    times.planned(1, 0.0, 0.0)
    times.answered(1, 1.0, run_s=1.1, sample_s=0.0)
    assert times.counters()["step_seconds_sum{phase=wait}"] == 0.0


def test_answers_to_steps_of_others_are_left_out():
    times = StepTimes()
    times.answered(3, 1.0, 0.1, 0.1)
    assert not any(times.counters().values())


def test_bounds_ascend():
    assert list(BOUNDS) == sorted(set(BOUNDS))
