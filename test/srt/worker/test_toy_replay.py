"""Replay on a toy hybrid in fp64: section 7, tests 2, 3, 4 and 5 of the replay document."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from test import oracle
from test.driver import Driver, Row, kv_pools, make_runner, toy_config
from treadle.srt.cache.replay import ReplaySchedule

CONFIG = toy_config()
WINDOW, PAGE = 8, 4
LAYERS = len(CONFIG.window_layers)
EXACT = LAYERS * (WINDOW - 1)
PROMPT = random.Random(5).choices(range(CONFIG.vocab_size), k=120)

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture(scope="module")
def values() -> dict[str, Tensor]:
    return oracle.random_parameters(CONFIG, 3, torch.float64)


@pytest.fixture
def driver(values: dict[str, Tensor]) -> Driver:
    return Driver(make_runner(CONFIG, values, page_size=PAGE))


def warm(driver: Driver, hit: int, rows: int, tokens: list[int] = PROMPT) -> Tensor:
    """Logits after a hit of `hit` with a uniform replay of `rows` rows, on the pages of slot 1."""
    start = max(0, hit - rows)
    driver.enter(2, tokens, adopted=driver.page_rows[1][: hit // PAGE], hit=hit, floor=start)
    last = CONFIG.window_layers[-1]
    out = None
    slots = driver.runner.slots
    plan_reset, driver.resets = driver.resets, []
    for reset in plan_reset:
        driver.runner._reset(reset)
    slots.entry[2] = [start if i <= last else hit for i in range(len(CONFIG.layers))]
    slots.exit[2] = [start if i < last else hit for i in range(len(CONFIG.layers))]
    out = driver.step([Row(2, start, hit, len(tokens))])
    return out[0]


def first_row(hit: int, slope: int, depth: int = 1) -> int:
    kinds = tuple(layer.kind for layer in CONFIG.layers)
    return ReplaySchedule.staircase(kinds, WINDOW, slope, depth).entry_start(0, hit)


def staircase(driver: Driver, hit: int, slope: int, depth: int = 1) -> Tensor:
    start = first_row(hit, slope, depth)
    driver.enter(
        2, PROMPT, adopted=driver.page_rows[1][: hit // PAGE], hit=hit, floor=start,
        slope=slope, depth=depth,
    )  # fmt: skip
    return driver.step([Row(2, start, hit, len(PROMPT))])[0]


def test_cold_run_equals_an_independent_decoder(driver: Driver, values: dict[str, Tensor]):
    expected = oracle.logits(CONFIG, values, PROMPT)[-1]
    torch.testing.assert_close(driver.cold(1, PROMPT), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hit", range(32, 120, PAGE))
def test_replay_of_exact_depth_equals_cold_at_every_hit(driver: Driver, hit: int):
    cold = driver.cold(1, PROMPT)
    assert (warm(driver, hit, EXACT) - cold).abs().max() <= 1e-12


@pytest.mark.parametrize("hit", (64, 116))
def test_one_row_less_than_exact_depth_is_not_exact(driver: Driver, hit: int):
    cold = driver.cold(1, PROMPT)
    assert (warm(driver, hit, EXACT - 1) - cold).abs().max() > 1e-6


def test_error_falls_with_each_further_window(driver: Driver):
    cold = driver.cold(1, PROMPT)
    errors = [float((staircase(driver, 96, 0, k) - cold).abs().max()) for k in (1, 2, 3)]
    assert errors[0] > errors[1] > errors[2] > 0


@pytest.mark.parametrize("hit", range(32, 120, PAGE))
def test_staircase_of_slope_window_minus_one_is_exact(driver: Driver, hit: int):
    cold = driver.cold(1, PROMPT)
    assert (staircase(driver, hit, WINDOW - 1) - cold).abs().max() <= 1e-12


def test_staircase_is_closer_than_uniform_replay_of_no_fewer_rows(driver: Driver):
    cold = driver.cold(1, PROMPT)
    uniform = [float((staircase(driver, h, 0, 2) - cold).abs().mean()) for h in range(64, 116, 4)]
    stairs = [float((staircase(driver, h, 5) - cold).abs().mean()) for h in range(64, 116, 4)]
    assert sum(stairs) < sum(uniform)


@pytest.mark.parametrize("slope", (0, 2, 7))
def test_replay_writes_no_shared_page(driver: Driver, slope: int):
    """B6: every page of the hit is byte-equal before and after."""
    driver.cold(1, PROMPT)
    pages = kv_pools(driver.runner).pages
    shared = driver.page_rows[1][: 96 // PAGE]
    before = pages.k[:, shared].clone(), pages.v[:, shared].clone()
    staircase(driver, 96, slope)
    assert torch.equal(pages.k[:, shared], before[0])
    assert torch.equal(pages.v[:, shared], before[1])


def test_poisoned_slot_of_a_former_owner_never_shows(driver: Driver):
    """Section 7 test 3: stale ring rows hold NaN; reset makes them nobody's."""
    cold = driver.cold(1, PROMPT)
    rings = kv_pools(driver.runner).windows
    driver.cold(2, PROMPT[::-1])
    rings.k[:, 2] = torch.nan
    rings.v[:, 2] = torch.nan
    assert torch.equal(staircase(driver, 96, 0), staircase(driver, 96, 0))
    assert torch.isfinite(staircase(driver, 96, 3)).all()
    rings.k[:, 3], rings.v[:, 3] = torch.nan, torch.nan
    assert torch.equal(driver.cold(3, PROMPT), cold)


def test_mixed_step_is_bit_equal_to_each_request_alone(values: dict[str, Tensor]):
    """Section 7 test 4: decode, cold prefill and two hits of different H in one forward."""

    def prepared() -> Driver:
        driver = Driver(make_runner(CONFIG, values, page_size=PAGE))
        driver.cold(1, PROMPT)
        driver.cold(3, PROMPT[7:60])
        driver.tokens[3].append(11)
        driver.enter(4, PROMPT[3:50])
        for slot, hit, slope in ((5, 64, 0), (6, 96, 3)):
            floor = first_row(hit, slope)
            adopted = driver.page_rows[1][: hit // PAGE]
            driver.enter(slot, PROMPT, adopted=adopted, hit=hit, floor=floor, slope=slope)
        return driver

    rows = [
        Row(3, 53, 53, 54),
        Row(4, 0, 0, 47),
        Row(5, first_row(64, 0), 64, 120),
        Row(6, first_row(96, 3), 96, 120),
    ]
    mixed = prepared().step(rows)
    for i, row in enumerate(rows):
        assert torch.equal(prepared().step([row])[0], mixed[i]), row


@pytest.mark.parametrize("hit", (64, 100))
def test_chunk_ends_do_not_change_a_bit(driver: Driver, hit: int):
    """Section 7 test 5 and B16: chunks of any size, ends inside an exact replay included."""
    whole = driver.cold(1, PROMPT)
    for seed in range(6):
        ends = sorted(random.Random(seed).sample(range(4, 120, 4), 4))
        assert torch.equal(driver.cold(3, PROMPT, ends), whole)
    exact = staircase(driver, hit, WINDOW - 1)
    start = first_row(hit, WINDOW - 1)
    adopted = driver.page_rows[1][: hit // PAGE]
    driver.enter(4, PROMPT, adopted=adopted, hit=hit, floor=start, slope=WINDOW - 1)
    middle = (start + hit) // 2
    driver.step([Row(4, start, hit, middle, 0)])
    out = driver.step([Row(4, middle, hit, 120)])
    assert torch.equal(out[0], exact)


def test_decode_after_a_hit_equals_decode_after_cold(driver: Driver):
    driver.cold(1, PROMPT)
    staircase(driver, 96, WINDOW - 1)
    for token in PROMPT[:20]:
        difference = driver.decode(1, token) - driver.decode(2, token)
        assert difference.abs().max() <= 1e-12
