"""Cells: filled once, read by anyone."""

from __future__ import annotations

import asyncio

import pytest

from treadle.client.errors import ProgramError, Refused
from treadle.lang.cells import Cell, full, wait


def test_a_full_cell_does_not_fail_any_more():
    cell = full(42, {"n": 1})
    cell.fail(Refused(400, "late"))
    assert (cell.get(), cell.meta) == (42, {"n": 1})


def test_a_failed_cell_raises_when_it_is_read():
    cell = Cell()
    cell.fail(Refused(400, "bad"))
    wait(cell.done, None, "")
    with pytest.raises(Refused):
        cell.get()


async def test_waiting_on_the_program_s_own_loop_says_what_to_do_instead():
    with pytest.raises(ProgramError, match="await it"):
        wait(Cell().done, asyncio.get_running_loop(), "await it")
    wait(full(1).done, asyncio.get_running_loop(), "")  # nothing to wait for
