"""Makers of small caches, shared by the tests of this folder."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.model_config import LayerKind

BOUNDED = ReplayShape("bounded", 0, 1)
MakeManager = Callable[..., CacheManager]


@pytest.fixture
def gemma_kinds() -> tuple[LayerKind, ...]:
    """Gemma 3 270M: global layers are 5, 11 and 17 of 18."""
    return ((LayerKind.WINDOW,) * 5 + (LayerKind.GLOBAL,)) * 3


@pytest.fixture
def make_manager() -> MakeManager:
    """A manager for a model of `windows` window layers below one global layer."""

    def make(
        num_pages: int = 64,
        num_slots: int = 9,
        page_size: int = 4,
        *,
        windows: int = 0,
        window: int = 4,
        shape: ReplayShape = BOUNDED,
        grid: int = 0,
        policy: str = "lru",
        prefix_cache: bool = True,
        warm: int = 0,
    ) -> CacheManager:
        kinds = (LayerKind.WINDOW,) * windows + (LayerKind.GLOBAL,)
        rule = ReplayRule(kinds, window if windows else 0, shape, page_size, grid)
        rings = window + 2 * page_size * bool(warm) if windows else 0
        facts = CacheFacts(
            num_pages, num_slots, page_size, prefix_cache, policy, num_warm=warm, ring_rows=rings
        )
        return CacheManager(facts, rule)

    return make


@pytest.fixture
def make_ids() -> Callable[..., array]:
    """`make_ids(3, 8)`: 8 ids of a text named 3; texts of two names differ from the first id."""

    def make(name: int, count: int, *, then: int | None = None, more: int = 0) -> array:
        tail = () if then is None else (1000 * then + i for i in range(more))
        return array("i", [*(1000 * name + i for i in range(count)), *tail])

    return make
