"""Windows that are there already, on a toy hybrid in fp64: taken over, copied, never mixed up (B5).

Window 8, pages of 4, rings of 16: `TURN` ends at 61 tokens, the next turn adopts 60 of them.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from test import oracle
from test.driver import Driver, Row, kv_pools, make_runner, toy_config

CONFIG = toy_config()
WINDOW, PAGE = 8, 4
TURN = random.Random(5).choices(range(CONFIG.vocab_size), k=61)
NEXT = random.Random(6).choices(range(CONFIG.vocab_size), k=25)
HIT = 60

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture(scope="module")
def values() -> dict[str, Tensor]:
    return oracle.random_parameters(CONFIG, 3, torch.float64)


@pytest.fixture
def driver(values: dict[str, Tensor]) -> Driver:
    return Driver(make_runner(CONFIG, values, page_size=PAGE, spare_rows=2 * PAGE))


def go_on(driver: Driver, slot: int, source: int, hit: int, prompt: list[int]) -> Tensor:
    """Logits of the last row of `prompt`, run from `hit` with the window of `source`."""
    adopted = driver.page_rows[source][: hit // PAGE]
    floor = max(0, hit - WINDOW + 1)
    driver.enter(slot, prompt, adopted=adopted, hit=hit, floor=floor, source=source)
    return driver.step([Row(slot, hit, hit, len(prompt))])[0]


@pytest.mark.parametrize("slot", [1, 2], ids=["taken over", "copied"])
@pytest.mark.parametrize("hit", [60, 56])
def test_next_turn_on_a_kept_window_equals_the_whole_run_to_the_bit(
    driver: Driver, slot: int, hit: int
):
    prompt = TURN + NEXT
    whole = driver.cold(3, prompt, [40, 60])
    driver.cold(1, TURN, [40])
    assert torch.equal(go_on(driver, slot, 1, hit, prompt), whole)
    for token in NEXT:  # round the ring
        assert torch.equal(driver.decode(slot, token), driver.decode(3, token))


def test_the_branch_that_was_copied_from_goes_on_as_before(driver: Driver):
    driver.cold(1, TURN)
    driver.cold(3, TURN)
    go_on(driver, 2, 1, HIT, TURN + NEXT)
    for token in NEXT:
        assert torch.equal(driver.decode(1, token), driver.decode(3, token))


def test_rows_above_the_hit_are_nobodys(driver: Driver):
    """B24, S5: those of the former owner are there, as bytes, and no reader may see them."""
    driver.cold(1, TURN)
    driver.decode(1, 5)  # the row of a request that had ended (T33)
    go_on(driver, 2, 1, 56, TURN[:56] + NEXT)
    tags = kv_pools(driver.runner).windows.tags
    assert set(tags[:, 2].flatten().tolist()) == set(range(56 + len(NEXT) - 16, 56 + len(NEXT)))
    driver.enter(1, TURN + NEXT, adopted=driver.page_rows[1][:14], hit=56, floor=49, source=1)
    for reset in driver.resets:
        driver.runner._reset(reset)
    assert tags[:, 1].max() == 55


def test_nothing_outside_the_window_is_read(driver: Driver):
    """Section 7 test 3: NaN in every ring row that the hit's window does not need."""
    prompt = TURN + NEXT
    whole = driver.cold(3, prompt)
    driver.cold(1, TURN)
    rings = kv_pools(driver.runner).windows
    dead = (rings.tags[:, 1] >= HIT) | (rings.tags[:, 1] <= HIT - WINDOW)
    assert dead.any()
    rings.k[:, 1][dead], rings.v[:, 1][dead] = torch.nan, torch.nan
    rings.k[:, 2], rings.v[:, 2] = torch.nan, torch.nan
    assert torch.equal(go_on(driver, 2, 1, HIT, prompt), whole)
    assert torch.equal(go_on(driver, 1, 1, HIT, prompt), whole)


def test_window_that_is_not_whole_is_refused_by_the_reader(driver: Driver):
    """S5: the ring has gone on too far. A wrong window never gives a wrong token silently."""
    driver.cold(1, TURN)
    for token in NEXT:
        driver.decode(1, token)
    with pytest.raises(RuntimeError, match="no window row of position 53"):
        go_on(driver, 2, 1, HIT, TURN + NEXT)


def test_after_a_staircase_replay_the_window_of_its_hit_is_whole_in_every_layer(driver: Driver):
    """B40: `start` of a kept window may be the hit itself."""
    driver.cold(1, TURN)
    prompt = TURN + NEXT[:2]
    adopted = driver.page_rows[1][: HIT // PAGE]
    driver.enter(2, prompt, adopted=adopted, hit=HIT, floor=HIT - 14, slope=2)
    first = driver.step([Row(2, HIT - 14, HIT, len(prompt))])[0]
    assert torch.equal(go_on(driver, 4, 2, HIT, prompt), first)


def test_steps_may_mix_kept_windows_with_replays(driver: Driver, values: dict[str, Tensor]):
    """B18: a row schedule of a neighbour does not touch a slot whose window was there."""
    prompt = TURN + NEXT
    driver.cold(1, TURN)
    alone = go_on(driver, 2, 1, HIT, prompt)
    adopted = driver.page_rows[1][: HIT // PAGE]
    driver.enter(4, prompt, adopted=adopted, hit=HIT, floor=HIT - 14, slope=2)
    driver.enter(5, prompt, adopted=adopted, hit=HIT, floor=HIT - WINDOW + 1, source=1)
    rows = [Row(4, HIT - 14, HIT, len(prompt)), Row(5, HIT, HIT, len(prompt))]
    assert torch.equal(driver.step(rows)[1], alone)
