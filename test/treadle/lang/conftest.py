"""Fixtures of the language's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from test.treadle.lang.fake_backend import FakeBackend
from treadle.lang.options import DEFAULT


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """The default backend of the test's programs."""
    fake = FakeBackend()
    before, DEFAULT.backend = DEFAULT.backend, fake
    yield fake
    DEFAULT.backend = before
