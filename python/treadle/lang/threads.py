"""Plain functions in daemon threads, awaited: a function that never returns cannot keep the process
alive, and giving up the wait leaves it to itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Its value, or its error; SystemExit and its like become a RuntimeError."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(act: Callable[[], None]) -> None:
        if not done.done():
            act()

    def work() -> None:
        try:
            value = context.run(function)
        except StopIteration as error:  # which a future refuses
            failure: Exception = RuntimeError(repr(error))
        except Exception as error:  # foreign code
            failure = error
        except BaseException as error:
            failure = RuntimeError(repr(error))
        else:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, lambda: done.set_result(value))
            return
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, lambda: done.set_exception(failure))

    threading.Thread(target=work, name="treadle-work", daemon=True).start()
    return await done
