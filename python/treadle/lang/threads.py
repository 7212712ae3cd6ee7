"""Plain functions in daemon threads, awaited: a function that never returns cannot keep the process
alive, and giving up the wait leaves it to itself. `Slots` bounds how many there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(
    function: Callable[[], T], begins: Callable[[], None] = lambda: None
) -> T:
    """Its value, or its error; SystemExit and its like become a RuntimeError. `begins` is called
    on the loop once there is a thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(act: Callable[[], None]) -> None:
        if not done.done():
            act()

    def tell(act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, act)

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
            tell(lambda: done.set_result(value))
            return
        tell(lambda: done.set_exception(failure))

    threading.Thread(target=work, name="treadle-work", daemon=True).start()
    begins()
    return await done


class Slots:
    """Of one loop. At most `size` functions are waited for at once, others queue. One that is given
    up holds no slot, or few that hang would stop all; so threads are bounded too, at twice that.
    """

    def __init__(self, size: int) -> None:
        self.num_threads = 0
        self._most_threads = 2 * size
        self._free = asyncio.Semaphore(size)

    async def run(self, function: Callable[[], T], begins: Callable[[], None]) -> T:
        """The function's value, or its error. `begins` is called when it runs. Raises
        RuntimeError when too many that were given up have not ended."""
        async with self._free:
            if self.num_threads >= self._most_threads:
                raise RuntimeError(
                    f"{self.num_threads} threads still run, most for functions that were given up; "
                    "no more are started"
                )
            loop = asyncio.get_running_loop()

            def work() -> T:
                try:
                    return function()
                finally:
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        loop.call_soon_threadsafe(self._ended)

            def began() -> None:
                self.num_threads += 1  # the thread's end is told to the loop, so later
                begins()

            return await in_daemon_thread(work, began)

    def _ended(self) -> None:
        self.num_threads -= 1
