"""What all branches of one run share: backend, defaults, the trace, and what it may recall.

Lives on the background loop, except for the fields that never change.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .asker import Asker
from .backend import Backend
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

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Around the program's function, in the thread or task that it runs in."""
        self._body = _here()
        try:
            yield
        finally:
            self._body = None

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
