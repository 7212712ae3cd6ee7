"""The one event loop of this side, in a daemon thread: every request and every branch runs on it.

Programs may be plain functions in any thread or coroutines on a loop of their own; both hand work
over here and wait for it. So connections belong to one loop, and a program that blocks holds up
nobody else. Invariant: nothing on this loop ever waits for a result of `LoopThread.wait`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import selectors
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

from .errors import ProgramError

T = TypeVar("T")

STOP_S = 5.0


class LoopThread:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop(self._selector)
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="treadle-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_stopping:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a program: its caller's
                self.loop.run_forever()

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], object]) -> None:
        """Runs `function` on the loop, at once when called there; does not wait."""
        if self.is_here():
            function()
        else:
            self.loop.call_soon_threadsafe(function)

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, for a caller in another thread. Raises ProgramError on the loop,
        which would wait for itself."""
        if self.is_here():
            work.close()
            raise ProgramError("this blocks, and was called on the client's own loop: await it")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def at_exit(self, closer: Callable[[], Awaitable[None]]) -> None:
        """`closer` is awaited on the loop before the process ends."""
        self._closers.append(closer)

    def not_at_exit(self, closer: Callable[[], Awaitable[None]]) -> None:
        """It has been closed before: the loop holds on to it no longer."""
        with contextlib.suppress(ValueError):
            self._closers.remove(closer)

    def stop(self) -> None:
        """Idempotent. Open connections are closed first."""
        if not self._thread.is_alive() or self.loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            self.start(self._close()).result(STOP_S)
        self._is_stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_S)
        if not self._thread.is_alive():
            self.loop.close()

    def let_go(self) -> None:
        """In a forked child, which has the loop without its thread. The child may write nothing to
        the selector: the kernel shares it with the parent, whose connections would fall silent."""
        if self.loop.is_closed():
            return
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._selector.fileno(), inheritable=False)
        os.close(nothing)

    async def _close(self) -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(closer() for closer in self._closers), return_exceptions=True)


class Once:
    """Makes a thread on first use, one however many threads come first; a forked child makes its
    own."""

    def __init__(self, make: Callable[[], LoopThread]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: LoopThread | None = None
        self._of_parents: list[LoopThread] = []  # kept, for what lies on them is not ours to close
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()  # another thread may hold it for ever
        made, self._made = self._made, None
        if made is not None:
            made.let_go()
            self._of_parents.append(made)

    def get(self) -> LoopThread:
        with self._lock:
            if self._made is None:
                self._made = self._make()
                atexit.register(self._made.stop)
            return self._made


_ONCE = Once(LoopThread)


def background() -> LoopThread:
    """The one of the process."""
    return _ONCE.get()
