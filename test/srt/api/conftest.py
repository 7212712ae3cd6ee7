"""A served app without an engine for every test of the HTTP routes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from test.serving import Bench, serving


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as served:
        yield served
