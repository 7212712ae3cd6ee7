"""Functions in daemon threads."""

from __future__ import annotations

import contextvars
import threading

import pytest

from treadle.lang.threads import in_daemon_thread

WHO = contextvars.ContextVar("WHO", default="")


async def test_values_errors_and_context_pass_through():
    WHO.set("me")
    assert await in_daemon_thread(WHO.get) == "me"
    thread = await in_daemon_thread(threading.current_thread)
    assert thread.daemon
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 / 0)


async def test_what_would_end_a_process_is_an_error():
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        await in_daemon_thread(leave)
