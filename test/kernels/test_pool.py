"""The threads of the C++ library: every chunk runs once, whoever is late or calls beside."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.dispatch import backend

pytestmark = pytest.mark.skipif(backend() != "cpu", reason="the C++ library is not built")


@pytest.fixture(params=[2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def product(seed: int) -> tuple[Tensor, ops.Q8Weight]:
    gen = torch.Generator().manual_seed(seed)
    weight = torch.randn(512 + 16 * seed, 320, generator=gen)
    return torch.randn(20 + seed, 320, generator=gen), ops.pack_q8(weight)


def test_thousands_of_short_loops_lose_and_repeat_no_chunk(threads: int):
    """Helpers come late for most of them: a claim on a newer loop must not run an older one's."""
    cases = [product(seed) for seed in range(4)]
    torch.set_num_threads(1)
    expected = [ops.linear_q8(x, w) for x, w in cases]
    torch.set_num_threads(threads)
    for i in range(3000):
        x, w = cases[i % 4]
        assert torch.equal(ops.linear_q8(x, w), expected[i % 4]), i


def test_two_callers_at_once_get_their_own_results(threads: int):
    cases = [product(seed) for seed in range(2)]
    expected = [ops.linear_q8(x, w) for x, w in cases]
    wrong: list[int] = []

    def call(which: int) -> None:
        for _ in range(500):
            if not torch.equal(ops.linear_q8(*cases[which]), expected[which]):
                wrong.append(which)

    callers = [threading.Thread(target=call, args=(i,)) for i in (0, 1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_helpers_that_sleep_are_woken(threads: int):
    """A pause longer than the spin puts helpers to sleep between two loops."""
    x, w = product(3)
    expected = ops.linear_q8(x, w)
    idle = threading.Event()
    for _ in range(20):
        idle.wait(0.002)
        assert torch.equal(ops.linear_q8(x, w), expected)
