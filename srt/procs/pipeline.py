"""The loop of a worker whose device runs ahead: plans are launched as they come, and answered by a
thread that waits for the device.

    main thread    recv plan N+1 -> launch ........... recv plan N+2 -> launch
    answering      wait for step N -> send its result | wait for step N+1 -> ...

So a plan is launched while the step before it runs, whenever the scheduler has one. Answers leave
in the order of plans. The scheduler's outbox belongs to the answering thread alone.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from ..errors import InvariantBroken
from ..lifecycle import Shutdown
from ..messages import Done, StepPlan, StepResult
from ..net.ipc import Inbox, Outbox
from ..profiling import Profile

if TYPE_CHECKING:
    from ..worker.profiler import Profiler

log = logging.getLogger(__name__)


class Pending(Protocol):
    def result(self) -> StepResult: ...


class Launching(Protocol):
    """A runner that does not wait."""

    @property
    def profiler(self) -> Profiler: ...

    def launch(self, plan: StepPlan) -> Pending: ...


class Answers:
    """The answering thread. `wake` is called when it fails; `check` then raises what it met."""

    def __init__(self, scheduler: Outbox | None, inbox: Inbox) -> None:
        self._scheduler = scheduler
        self._inbox = inbox
        self._queue: SimpleQueue[Pending | Done | None] = SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def put(self, item: Pending | Done) -> None:
        self._queue.put(item)

    def check(self) -> None:
        """Raises what ended the thread."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """All that was put has been answered, or the thread has failed."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                message = item if isinstance(item, Done) else item.result()
                if self._scheduler is not None:
                    self._scheduler.send(message)
        except Exception as e:  # the top of a thread: the main one raises it
            self._error = e
            self._inbox.wake()


def pipeline_plans(inbox: Inbox, runner: Launching, scheduler: Outbox | None) -> None:
    """Until `Shutdown`. Raises what ends the process."""
    answers = Answers(scheduler, inbox)
    while True:
        message = inbox.recv()
        answers.check()
        if isinstance(message, StepPlan):
            answers.put(runner.launch(message))
            runner.profiler.stepped()
        elif isinstance(message, Profile):
            answers.put(profile(message, runner.profiler))
        elif isinstance(message, Shutdown):
            answers.close()
            return
        elif message is not None:
            raise InvariantBroken(f"a worker cannot handle {type(message).__name__}")


def profile(message: Profile, profiler: Profiler) -> Done:
    """Starts or stops a profile, and says how that went."""
    options = message.options
    ok, text = profiler.stop() if options is None else profiler.start(options)
    return Done(message.token, ok, text)
