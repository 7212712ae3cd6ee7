"""Server-sent events: bytes in, the data of events out. Pure but for `read_events`.

Keeps to the specification where servers differ: lines end in LF, CR LF or CR, several data lines
make one event, comments and other fields are passed over, an event that the stream's end cuts off
is dropped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

DONE = "[DONE]"
_LF, _CR = 10, 13


class EventReader:
    """Feed it bytes as they come; a character or a line end may be split between two feeds."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []
        self._skips_lf = False  # the last feed ended in CR, whose LF may come now

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` completes."""
        if self._skips_lf and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if chunk:
            self._skips_lf = False
        self._rest += chunk
        events: list[str] = []
        start = 0
        while (end := self._line_end(start)) >= 0:
            self._line(self._rest[start:end].decode(errors="replace"), events)
            start = self._next_line(end)
        del self._rest[:start]
        return events

    def _line_end(self, start: int) -> int:
        lf = self._rest.find(b"\n", start)
        cr = self._rest.find(b"\r", start, lf if lf >= 0 else len(self._rest))
        return cr if cr >= 0 else lf

    def _next_line(self, end: int) -> int:
        if self._rest[end] != _CR:
            return end + 1
        if end + 1 == len(self._rest):
            self._skips_lf = True
            return end + 1
        return end + 2 if self._rest[end + 1] == _LF else end + 1

    def _line(self, line: str, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append("\n".join(self._data))
                self._data = []
            return
        name, _, value = line.removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of each event; ends with the stream."""
    reader = EventReader()
    async for chunk in chunks:
        for event in reader.feed(chunk):
            yield event
