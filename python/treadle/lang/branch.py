"""One branch of a program: its transcript, its queue of work and the one coroutine that runs it.

    program's thread            background loop
    submit(expr) -> queue  -->  _pump: run, run, ...    (a task only while there is work)
    cells, read by waiting <--  filled as work is done

After an error the rest of the queue is not run: each piece fails with that error, so nobody waits
for what will never come. A fork is work like any other: its children begin when it is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import uuid
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from ..client.background import background
from ..client.errors import Cancelled, ClientError, ProgramError
from .asker import Asker
from .backend import Session
from .cells import Cell, settled
from .events import EventLog
from .interpreter import Interpreter
from .ir import Expr
from .prompt import Transcript
from .run import Run


class Work(Protocol):
    async def run(self, branch: Branch) -> None: ...

    def fail(self, error: Exception) -> None:
        """Instead of `run`."""


class Branch:
    """`submit`, `cancel`, `keep_warm`, `idle` and `end` may be called from any thread; the rest is
    the loop's."""

    def __init__(self, run: Run, parent: Branch | None = None) -> None:
        self.owner = run
        if parent is None:
            self.session = Session(run.session_id)
        else:
            self.session = Session(uuid.uuid4().hex, parent.session.id)
        self.asker = Asker(run.backend, self.session, run.recorder, run.past)
        self.log = EventLog(run.is_streaming)
        self.transcript = Transcript()
        self.transcript.variables = run.variables
        self.error: Exception | None = None
        self.children: list[Branch] = []
        self._queue: deque[Work] = deque()
        self._current: Work | None = None  # has left the queue and not yet run
        self._task: asyncio.Task[None] | None = None
        self._warmer: asyncio.Task[None] | None = None
        self._is_ready = parent is None
        self._is_ended = False
        self.is_ending = False  # its log will be closed
        if parent is None:
            run.recorder.branch(self.session)

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        background().call(self._start)

    def begin(self, transcript: Transcript) -> None:
        """A child begins where its parent is now."""
        self.transcript = transcript
        self._is_ready = True
        self._start()

    def cancel(self) -> None:
        """What runs ends, and its request with it; what waits or comes fails with Cancelled. So do
        the children. No effect on a branch that has ended."""
        self.is_ending = True
        background().call(self._cancel)

    def keep_warm(self, seconds: float | None) -> None:
        """Touches the cached prefix whenever no request was made for `seconds`; None ends it."""
        background().call(functools.partial(self._keep_warm, seconds))

    def idle(self) -> Future[None]:
        """Done when everything submitted so far has run or failed; at once when it has, so that
        whoever may not block can read a branch that has ended."""
        mark = Mark()
        if self._queue or self._current is not None or not self._is_ready:
            self.submit(mark)
        else:
            mark.done.set_result(None)
        return mark.done

    def end(self) -> None:
        """Once the queue has run, watchers are told that nothing more comes."""
        self.is_ending = True
        self.submit(End(self))

    def _start(self) -> None:
        if self._is_ready and self._task is None and self._queue:
            self._is_ended = False
            self._task = asyncio.get_running_loop().create_task(self._pump())
            self._task.add_done_callback(self._pumped)

    def _pumped(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            self.fail(Cancelled("the branch was cancelled"))
        elif (error := task.exception()) is not None:  # SystemExit, of a backend
            self.fail(ProgramError(f"a request ended in {error!r}"))
        self._start()

    def _cancel(self) -> None:
        for child in self.children:
            child.cancel()
        if self._task is not None:
            self._task.cancel()
        elif not self._is_ended:
            self.fail(Cancelled("the branch was cancelled"))

    async def _pump(self) -> None:
        while self._queue:
            work = self._queue[0]
            self._current = None if isinstance(work, Mark) else work
            self._queue.popleft()  # after it is current: others must not see neither
            try:
                if self.error is None:
                    await work.run(self)
                else:
                    work.fail(self.error)
                self._current = None
            except Exception as error:  # errors are values on the branch, bugs of a program too
                self.fail(error)
            self.log.wake()  # variables are full that were not

    def ended(self) -> None:
        self._is_ended = True
        if self.session.parent is None:
            self.owner.leave_gate()
            self.owner.recorder.ended_s = self.owner.recorder.now()
        self._keep_warm(None)
        self.log.close()
        for child in self.children:
            if not child.is_ending:  # a copy, which nobody joins
                child.end()

    def _keep_warm(self, seconds: float | None) -> None:
        if self._warmer is not None:
            self._warmer.cancel()
            self._warmer = None
        if seconds is not None and not self._is_ended:
            self._warmer = asyncio.get_running_loop().create_task(self._warm(seconds))

    async def _warm(self, seconds: float) -> None:
        """A failure is no error of the program: its own next request will tell."""
        while self.error is None:
            rest = self.asker.last_s + seconds - time.monotonic()
            if self.asker.num_open or rest > 0:
                await asyncio.sleep(max(rest, seconds / 4))
                continue
            shared = self.transcript.so_far()
            self.asker.last_s = time.monotonic()
            if shared is not None:
                with contextlib.suppress(ClientError):
                    await self.asker.commit(shared)

    def fail(self, error: Exception) -> None:
        """Everything that waits, children that have not begun included, fails with `error`; and
        nothing more will be told, as whatever comes fails too."""
        if self.error is None:
            self.error = error
        self._is_ready = True
        current, self._current = self._current, None
        if current is not None:
            current.fail(error)
        while self._queue:
            self._queue.popleft().fail(error)
        self.log.close()


class Evaluate:
    """Runs an expression. `cells` are those of its variables."""

    def __init__(self, expr: Expr, cells: dict[str, Cell]) -> None:
        self._expr = expr
        self._cells = cells

    async def run(self, branch: Branch) -> None:
        interpreter = Interpreter(
            branch.owner, branch.asker, branch.transcript, branch.log, self._cells
        )
        await interpreter.evaluate(self._expr)
        for name, cell in self._cells.items():
            cell.fail(ProgramError(f"the expression did not set {name!r}"))  # if it is not full

    def fail(self, error: Exception) -> None:
        for cell in self._cells.values():
            cell.fail(error)


class Fork:
    """Commits what the children share, then begins them."""

    def __init__(self, children: Sequence[Branch]) -> None:
        self._children = children

    async def run(self, branch: Branch) -> None:
        shared = branch.transcript.so_far()
        if shared is not None and len(self._children) > 1:
            with contextlib.suppress(ClientError):  # a hint: what children ask will tell
                await branch.asker.commit(shared)
        for child in self._children:
            branch.owner.recorder.branch(child.session)
            child.begin(branch.transcript.copy())

    def fail(self, error: Exception) -> None:
        for child in self._children:
            child.fail(error)


class Gather:
    """Fills cells of the parent with the values of its children, in their order."""

    def __init__(self, children: Sequence[Branch], cells: dict[str, tuple[Cell, list[Cell]]]):
        self._children = children
        self._cells = cells

    async def run(self, branch: Branch) -> None:
        await asyncio.gather(*(settled(child.idle()) for child in self._children))
        for target, sources in self._cells.values():
            error = next((cell.error for cell in sources if cell.error is not None), None)
            if error is not None:
                target.fail(error)
            else:
                target.fill([cell.value for cell in sources], [cell.meta for cell in sources])

    def fail(self, error: Exception) -> None:
        for target, _ in self._cells.values():
            target.fail(error)


class Mark:
    """Nothing but a place in the queue."""

    def __init__(self) -> None:
        self.done: Future[None] = Future()

    async def run(self, branch: Branch) -> None:
        self._settle()

    def fail(self, error: Exception) -> None:
        self._settle()

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class End:
    """The last piece of work, as far as the program knows."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch

    async def run(self, branch: Branch) -> None:
        branch.ended()

    def fail(self, error: Exception) -> None:
        self._branch.ended()
