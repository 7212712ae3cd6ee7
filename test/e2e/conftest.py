"""Options and servers of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from test.e2e.server import Server
from treadle.srt.checkpoint import resolve_path
from treadle.srt.errors import ConfigError

StartServer = Callable[..., Server]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=float, default=3.0, help="length of the soak test")
    parser.addoption("--fuzz-requests", type=int, default=100, help="least generated requests")
    parser.addoption("--storm-requests", type=int, default=40, help="of each storm of aborts")
    parser.addoption("--chaos-seconds", type=float, default=6.0, help="of the router under kills")
    parser.addoption("--chaos-sessions", type=int, default=12, help="closed loops in it")


@pytest.fixture
def serve() -> Iterator[StartServer]:
    """Starts a server on a model name or path and waits until it serves."""
    with _starting() as start:
        yield start


@pytest.fixture(scope="module")
def serve_module() -> Iterator[StartServer]:
    """The same for servers that all tests of a file share."""
    with _starting() as start:
        yield start


@contextmanager
def _starting() -> Iterator[StartServer]:
    started: list[Server] = []

    def start(model: str, *argv: str) -> Server:
        if model.startswith("demo:"):
            _need(model)
        server = Server("--model-path", model, "--port", "0", *argv)
        started.append(server)
        server.wait_until_serving()
        return server

    try:
        yield start
    finally:
        for server in started:
            server.close()


def _need(model: str) -> None:
    try:
        resolve_path(model)
    except ConfigError as error:
        pytest.skip(f"the package with these weights is not installed: {error}")
