"""What a script says once: the backend of all its runs, and questions to it."""

from __future__ import annotations

from typing import Any

from ..client.errors import Unsupported
from .backend import Backend
from .options import DEFAULT
from .remote import RuntimeEndpoint


def set_default_backend(backend: Backend | None) -> None:
    """Runs that name no backend use this one.

    >>> tr.set_default_backend(tr.RuntimeEndpoint("http://127.0.0.1:30000"))
    """
    DEFAULT.backend = backend


def flush_cache(backend: Backend | None = None) -> None:
    """Empties the prefix cache of the server. Raises Unsupported where there is none.

    >>> tr.flush_cache()
    Traceback (most recent call last):
    treadle.client.errors.Unsupported: fake: flush_cache needs a treadle server
    """
    _server(backend, "flush_cache").flush_cache()


def get_server_info(backend: Backend | None = None) -> dict[str, Any]:
    """Settled options and state of the server. Raises Unsupported where there is none.

    >>> tr.get_server_info()
    Traceback (most recent call last):
    treadle.client.errors.Unsupported: fake: get_server_info needs a treadle server
    """
    return _server(backend, "get_server_info").get_server_info()


def _server(backend: Backend | None, what: str) -> RuntimeEndpoint:
    found = backend or DEFAULT.get()
    if not isinstance(found, RuntimeEndpoint):
        raise Unsupported(f"{found.name}: {what} needs a treadle server")
    return found
