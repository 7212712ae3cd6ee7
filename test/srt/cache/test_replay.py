"""Replay arithmetic, adoption and provenance; the row schedule against a model of dependencies."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.srt.cache.replay import (
    MAX_SCHEDULES,
    ReplayRule,
    ReplaySchedule,
    ReplayShape,
    ScheduleCache,
    reach,
)
from treadle.srt.config import CacheSection
from treadle.srt.errors import BadRequest, ConfigError
from treadle.srt.model_config import LayerKind

G, W = LayerKind.GLOBAL, LayerKind.WINDOW
STAIRS = ReplayShape("bounded", 32, 1)
FLAT = ReplayShape("bounded", 0, 1)


@pytest.fixture
def gemma(gemma_kinds):
    return ReplayRule(gemma_kinds, 512, STAIRS, 16)


def out_rows(rule: ReplayRule, shape: ReplayShape, window_layer: int) -> int:
    """The formula of 3.4b for window layer 1..L, before rows that nobody reads are cut."""
    return shape.depth * rule.window + shape.slope * (rule.num_windows - window_layer)


def test_gemma_staircase_costs_what_the_design_says(gemma):
    """3.4b: a mean of W + d(L-1)/2 = 736 rows a window layer."""
    rows = [out_rows(gemma, STAIRS, j) for j in range(1, 16)]
    assert rows[0] == 960 and rows[-1] == 512
    assert Fraction(sum(rows), 15) == 512 + Fraction(32 * 14, 2) == 736


def test_schedules_are_made_once_and_kept_in_bounds(gemma_kinds):
    schedules = ScheduleCache(gemma_kinds, 512)
    first = schedules.get(32, 1)
    assert first == ReplaySchedule.staircase(gemma_kinds, 512, 32, 1)
    assert schedules.get(32, 1) is first
    for slope in range(2 * MAX_SCHEDULES):
        schedules.get(slope, 1)
        assert len(schedules) <= MAX_SCHEDULES


def test_rows_nobody_reads_are_not_run(gemma):
    """The top window layer puts out none, the one below W-1, the rest as the formula says."""
    alive = gemma.schedule(STAIRS).alive
    assert len(alive) == 19
    assert alive[17:] == (0, 0)
    assert alive[16] == 511
    formula = [out_rows(gemma, STAIRS, j) for j in range(1, 14)]
    windows = [i for i in range(18) if i % 6 != 5]
    assert [alive[i + 1] for i in windows[:13]] == formula
    assert gemma.cost_rows(STAIRS, 4096) == -(-sum(alive[1:]) // 18)


def test_exact_depth_is_that_of_the_design(gemma):
    """3.4: L(W-1) = 7,665 rows; the formula W + (W-1)(L-1) is one more, which nobody reads."""
    exact = gemma.shape("exact", None)
    assert exact == ReplayShape("exact", 511, 1)
    assert out_rows(gemma, exact, 1) == 7666
    assert gemma.longest_run(exact) == 15 * 511 == 7665
    assert gemma.is_exact(exact, 10**6)
    assert gemma.schedule(exact).alive == reach(gemma.kinds, 512)


def test_uniform_fifteen_windows_are_exact_too(gemma):
    assert gemma.is_exact(ReplayShape("bounded", 0, 15), 10**6)
    assert not gemma.is_exact(ReplayShape("bounded", 0, 14), 10**6)
    assert not gemma.is_exact(ReplayShape("bounded", 510, 1), 10**6)


def test_start_at_zero_does_not_make_a_staircase_exact(gemma):
    """Upper layers drop rows that are still read, although the lowest layer begins at row 0."""
    assert gemma.start(STAIRS, 960) == 0
    assert not gemma.is_exact(STAIRS, 960)
    assert gemma.is_exact(STAIRS, 544)
    assert gemma.is_exact(FLAT, 512) and not gemma.is_exact(FLAT, 528)


def test_model_without_windows_replays_nothing():
    rule = ReplayRule((G, G), 0, ReplayShape("off", -1, 1), 16)
    assert rule.adopt(rule.default, 16) == 16
    assert rule.start(rule.default, 16) == 16
    assert rule.cost_rows(rule.default, 16) == 0
    assert rule.is_exact(rule.default, 16)
    assert not rule.is_deterministic(rule.shape("exact", None))


def test_hit_must_exceed_its_cost_by_the_least_saving(gemma):
    """B2: the mean cost decides, not the longest run (3.4b)."""
    cost = gemma.cost_rows(STAIRS, 960)
    assert cost == 667
    assert gemma.adopt(STAIRS, 656) == 0
    assert gemma.adopt(STAIRS, 672) == 672
    strict = ReplayRule(gemma.kinds, 512, STAIRS, 100)
    assert strict.adopt(STAIRS, 672) == 0
    assert strict.adopt(STAIRS, 688) == 688


def test_uniform_replay_takes_no_hit_that_it_runs_again_whole(gemma):
    """B2: there is nothing to save in a layer that keeps its rows."""
    assert gemma.cost_rows(FLAT, 512) < 512
    assert gemma.adopt(FLAT, 512) == 0
    assert gemma.adopt(FLAT, 528) == 528


def test_off_takes_no_hit_in_a_model_with_windows(gemma):
    assert gemma.adopt(gemma.shape("off", None), 8192) == 0


def test_chunk_must_hold_the_longest_replay_and_a_page(gemma):
    """B14: with less a hit is never admitted."""
    gemma.check_chunk(960 + 16, 16)
    with pytest.raises(ConfigError, match=r"--chunked-prefill-size 975.*976.*960 rows.*page of 16"):
        gemma.check_chunk(975, 16)
    ReplayRule(gemma.kinds, 512, ReplayShape("exact", 0, 1), 16).check_chunk(64, 16)


def test_request_shape_falls_back_to_the_default(gemma):
    """B38: the slope is a field of the request too."""
    assert gemma.shape(None, None) == STAIRS
    assert gemma.shape(None, 64) == ReplayShape("bounded", 64, 1)
    assert gemma.shape("off", None).mode == "off"
    exact = ReplayRule(gemma.kinds, 512, ReplayShape("exact", -1, 1), 16)
    assert exact.shape("bounded", None) == FLAT
    assert exact.shape(None, 3) == ReplayShape("exact", 511, 1)


def test_canonical_shape_has_the_grid_and_a_namespace_of_its_own(gemma_kinds):
    """T27: pages of another grid, slope or depth are other pages."""
    rule = ReplayRule(gemma_kinds, 512, STAIRS, 16, 4096)
    shape = rule.shape("canonical", None)
    assert shape == ReplayShape("canonical", 32, 1, 4096)
    assert rule.namespace(shape) == (("replay", "canonical:4096:32:1"),)
    assert rule.namespace(rule.shape("canonical", 3)) == (("replay", "canonical:4096:3:1"),)
    for mode in ("bounded", "exact", "off"):
        assert rule.namespace(rule.shape(mode, None)) == ()
    assert ReplayRule(gemma_kinds, 512, shape, 16, 4096).default == shape


def test_canonical_on_an_exact_server_has_the_configured_slope(gemma_kinds):
    rule = ReplayRule(gemma_kinds, 512, ReplayShape("exact", 32, 1), 16, 4096)
    assert rule.shape("canonical", None).slope == rule.shape("bounded", None).slope == 32


def test_canonical_takes_every_hit_that_saves_enough(gemma_kinds):
    """A cold run replays before that point too, so B2's comparison of costs does not apply."""
    rule = ReplayRule(gemma_kinds, 512, STAIRS, 16, 4096)
    assert rule.adopt(rule.shape("canonical", 511), 4096) == 4096


def test_canonical_without_windows_is_any_other_mode():
    rule = ReplayRule((G, G), 0, ReplayShape("bounded", 0, 1), 16, 4096)
    shape = rule.shape("canonical", None)
    assert shape.grid == 0 and rule.namespace(shape) == ()
    assert rule.adopt(shape, 16) == 16 and not rule.is_deterministic(shape)


def test_generation_of_rows_behind_a_point(gemma_kinds):
    """B34; a staircase of exact depth approximates nothing."""
    rule = ReplayRule(gemma_kinds, 512, STAIRS, 16, 4096)
    shape = rule.shape("canonical", None)
    assert [rule.generation(shape, b * 4096) for b in range(4)] == [0, 1, 2, 3]
    assert rule.generation(rule.shape("canonical", 511), 3 * 4096) == 0


@pytest.mark.parametrize("mode", ["exact", "canonical", "off"])
def test_modes_that_promise_independence_are_not_rebound(gemma_kinds, mode):
    """T16, 3.11."""
    rule = ReplayRule(gemma_kinds, 512, STAIRS, 16, 4096)
    assert rule.is_deterministic(rule.shape(mode, None))
    assert rule.needs_exact(rule.shape(mode, None)) == (mode == "exact")
    assert not rule.is_deterministic(STAIRS)


@pytest.mark.parametrize(
    ("mode", "slope"), [("deep", None), ("canonical", None), (None, 512), (None, -1)]
)
def test_request_shape_out_of_range_is_answered(gemma, mode, slope):
    with pytest.raises(BadRequest):
        gemma.shape(mode, slope)


@pytest.mark.parametrize(
    "shape",
    [
        ReplayShape("bounded", -1, 1),
        ReplayShape("bounded", 512, 1),
        ReplayShape("bounded", 0, 0),
        ReplayShape("some", 0, 1),
    ],
)
def test_default_shape_out_of_range_ends_the_launch(gemma_kinds, shape):
    """k = 0 is forbidden (3.4)."""
    with pytest.raises(ConfigError):
        ReplayRule(gemma_kinds, 512, shape, 16)


def test_unsettled_saving_ends_the_launch():
    with pytest.raises(ConfigError, match="--adopt-min-saving -1"):
        ReplayRule.from_config(None, CacheSection())  # type: ignore[arg-type]


def test_trim_of_upper_layers_is_another_shape_of_the_schedule():
    """B39, B17: layers 2 and up run the last 8 rows of a prompt of 100 rows."""
    trim = ReplaySchedule((1 << 40,) * 3 + (8, 8))
    assert [trim.entry_start(layer, 100) for layer in range(4)] == [0, 0, 0, 92]
    assert trim.exit_start(2, 100) == 92


def test_rows_never_come_back_upwards():
    with pytest.raises(ValueError, match="grow upwards"):
        ReplaySchedule((4, 5))


KINDS = st.lists(st.sampled_from([G, W]), min_size=1, max_size=7).map(tuple)


def fresh_rows(kinds, window, alive, hit):
    """What each of two rows from `hit` on depends on: nested keys, or None where a key that a
    cold run has is missing from the rings."""
    rows: dict[int, object] = {p: ("x", p) for p in range(max(0, hit - alive[0]), hit + 2)}
    for layer, kind in enumerate(kinds):
        out: dict[int, object] = {}
        for p in [p for p in rows if p >= hit - alive[layer + 1]]:
            low = max(0, p - window + 1) if kind is W else p
            out[p] = hash((layer, tuple(rows.get(q) for q in range(low, p + 1))))
        rows = out
    return [rows[hit], rows[hit + 1]]


@given(KINDS, st.integers(1, 5), st.integers(0, 4), st.integers(1, 3), st.integers(0, 30))
@settings(max_examples=300)
def test_cutting_unread_rows_changes_no_result_and_exactness_is_what_a_cold_run_gives(
    kinds, window, slope, depth, hit
):
    """B31, B40."""
    slope = min(slope, window - 1)
    shape = ReplayShape("bounded", slope, depth)
    rule = ReplayRule(kinds, window, shape, 0)
    alive = rule.schedule(shape).alive
    wanted = [out_rows(rule, shape, 1) if rule.num_windows else 0]
    for i, kind in enumerate(kinds):
        j = kinds[: i + 1].count(W)
        wanted.append(out_rows(rule, shape, j) if kind is W else wanted[-1])
    got = fresh_rows(kinds, window, alive, hit)
    assert got == fresh_rows(kinds, window, wanted, hit)
    cold = fresh_rows(kinds, window, [hit] * (len(kinds) + 1), hit)
    assert (got == cold) == rule.is_exact(shape, hit)


@given(KINDS, st.integers(1, 600), st.integers(0, 99), st.integers(1, 4), st.integers(0, 9000))
def test_schedule_is_monotone_and_global_layers_pass_rows_through(kinds, window, slope, depth, hit):
    """B39, B40."""
    schedule = ReplaySchedule.staircase(kinds, window, min(slope, window - 1), depth)
    assert schedule.num_layers == len(kinds)
    for layer, kind in enumerate(kinds):
        entry, leave = schedule.entry_start(layer, hit), schedule.exit_start(layer, hit)
        assert 0 <= entry <= leave <= hit
        if kind is G:
            assert entry == leave
        if W not in kinds[layer + 1 :]:
            assert leave == hit
        if layer:
            assert entry == schedule.exit_start(layer - 1, hit)
