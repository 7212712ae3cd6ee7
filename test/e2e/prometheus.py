"""Numbers of a server's metrics page, for tests that watch a server from outside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httpx

WAIT_S = 60.0


def total(metrics: str, name: str) -> float:
    """Sum of the samples of `name`; after a bar, only of those whose labels hold that text."""
    family, _, label = name.partition("|")
    pattern = re.compile(rf"^{re.escape(family)}(?:\{{([^}}]*)\}})? ([0-9.e+-]+)$", re.M)
    return sum(float(v) for labels, v in pattern.findall(metrics) if label in (labels or ""))


async def scrape(http: httpx.AsyncClient, *names: str) -> dict[str, float]:
    text = (await http.get("/metrics")).text
    return {name: total(text, name) for name in names}


async def scrape_until(
    http: httpx.AsyncClient, is_true: Callable[[dict[str, float]], bool], *names: str
) -> dict[str, float]:
    """The first reading that fits. Raises TimeoutError."""
    async with asyncio.timeout(WAIT_S):
        while not is_true(found := await scrape(http, *names)):
            await asyncio.sleep(0.005)
    return found
