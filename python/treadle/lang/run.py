"""What all branches of one run share: backend, defaults, the trace, and what it may recall.

Lives on the background loop, except for the fields that never change.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol

from .asker import Asker
from .backend import Backend
from .cells import wait
from .ir import Logprobs
from .past import Past
from .prompt import Prompt
from .recorder import Recorder
from .sampling import Sampling


class Gate(Protocol):
    """What the first request of each run passes: see `batch.PrefixGate`."""

    async def enter(self, prompt: Prompt, asker: Asker) -> None: ...

    def leave(self) -> None:
        """A run has ended without a request."""


@dataclass(slots=True, eq=False)
class Run:
    """`home`: the loop on which the program's own coroutines run, its tools among them; None for
    the background loop. `body_loop`: the same if the program itself is one, and so must not block.
    `variables`: of the chat template. `is_streaming`: events are kept and answers streamed."""

    backend: Backend
    sampling: Sampling
    recorder: Recorder = field(default_factory=Recorder)
    home: asyncio.AbstractEventLoop | None = None
    body_loop: asyncio.AbstractEventLoop | None = None
    is_streaming: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)
    gate: Gate | None = None
    past: Past | None = None
    logprobs: Logprobs | None = None
    program: str = ""
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _body: threading.Thread | asyncio.Task[Any] | None = None
    _returned: Future[Any] = field(default_factory=Future)

    @contextlib.contextmanager
    def playing(self) -> Iterator[Callable[[Any], None]]:
        """Around the program's function, in the thread or task that it runs in; what it gives
        takes the value that the function returned."""
        self._body = _here()
        try:
            yield self._return
        finally:
            self._body = None
            self._return(None)  # unless it returned something

    def _return(self, value: Any) -> None:
        with contextlib.suppress(InvalidStateError):
            self._returned.set_result(value)

    def returned(self) -> Any:
        """What the program's function returned: waits for it, except in the function itself."""
        if self.is_in_body():
            return None
        wait(self._returned, self.body_loop, "await s.task")
        return self._returned.result()

    def cancel(self) -> None:
        """A function that has not begun returns nothing."""
        if self._body is None:
            self._return(None)

    def is_in_body(self) -> bool:
        """Whether this is the program's function that asks."""
        return self._body is not None and self._body is _here()

    async def pass_gate(self, prompt: Prompt, asker: Asker) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.enter(prompt, asker)

    def leave_gate(self) -> None:
        """The run has ended, perhaps without a request."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.leave()


def _here() -> threading.Thread | asyncio.Task[Any]:
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no loop runs here
        return threading.current_thread()
