"""From a running generation to an HTTP response, whole or as a stream of events.

The first delta is awaited before the status is sent, so whatever the engine refuses (queue full, no
room, dead) still gets its own status, and a router may retry elsewhere. Later failures become an
error event and the end marker. In any case the generation is closed exactly when the response ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from ..errors import TreadleError
from ..net.sse import DONE, EventStream, event
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from .bodies import error_event, internal_error
from .generating import while_connected

MAX_WRITE_BYTES = 1 << 16  # of events that were waiting for the same write


class EventWriter(Protocol):
    """Spells a generation as events of one dialect; each result is zero or more whole events."""

    def begin(self) -> bytes: ...

    def write(self, delta: Delta) -> bytes: ...

    def end(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Framing:
    """What all streams of a dialect have alike: their last bytes, and how an error is spelled."""

    done: bytes
    error: Callable[[TreadleError], bytes]


SUPERSET = Framing(DONE, lambda error: event(error_event(error)))


async def collect(request: Request, generation: Generation) -> list[Delta]:
    """One delta per choice, in order of index; for jobs with interval 0. Raises what ended it."""

    async def gather() -> list[Delta]:
        return [delta async for delta in generation]

    try:
        deltas = await while_connected(request, gather())
    finally:
        generation.close()
    return sorted(deltas, key=lambda delta: delta.index)


async def stream(
    request: Request, generation: Generation, writer: EventWriter, framing: Framing = SUPERSET
) -> EventStream:
    """Raises what ended the generation before its first delta."""
    try:
        first = await while_connected(request, anext(generation))
    except BaseException:
        generation.close()
        raise
    return EventStream(_events(generation, writer, first, framing), generation.close)


async def _events(
    generation: Generation, writer: EventWriter, first: Delta, framing: Framing
) -> AsyncIterator[bytes]:
    try:
        yield writer.begin() + writer.write(first)
        gathered = b""
        async for delta in generation:
            gathered += writer.write(delta)
            # where the engine is faster than this process, events share a write
            if gathered and (not generation.has_delta or len(gathered) >= MAX_WRITE_BYTES):
                yield gathered
                gathered = b""
        yield writer.end() + framing.done
    except TreadleError as e:
        yield framing.error(e) + framing.done
    except Exception as e:  # the top of a request, past the point where it had a status
        yield framing.error(internal_error(e)) + framing.done
