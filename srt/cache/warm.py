"""WarmWindows: slots that still hold the window of a request that has left, for who goes on there.

The rings of a slot hold the last C positions that were run in it. A request that adopts a hit of H
tokens needs the W-1 rows below H; where they are still held it replays nothing (B5):

    ring   [ ........ W-1 rows below H ........ | below `end`: more answered rows | dead ]
           written - C                          H                               end      written

Rows of [end, written) were planned but never answered (T33). Nobody may read them (B24: whoever
takes the window forgets all tags from H on), but each has taken the place of the row C below it. So
a window serves each H with `max(start, written - C + W - 1) <= H <= end`. `written - end` is 1 when
one decode row was in flight, and `end` less its floor_P at most P - 1: C >= W + P - 1 keeps the
window of floor_P(end), which is what a next turn adopts. Rows of drafts do not count: for as many
as a step verifies a ring has rows beyond C, so they take no place that is counted. `start` is the
hit length of the request itself: the upper layers of its replay never had the rows further below.

A window is known by its namespace and its token ids, not by a tree node: the same path, but it
outlives splits and evictions. It holds no pages; without a hit of a length that it serves it is of
no use to anybody, and nobody asks for it. Approximations behind it travel with it (B34).

Order of loss, never an error: windows without session and those of a session that has a newer one,
then the newest of each session; within both the one unused for longest. A slot that a step in
flight still writes is neither given away nor taken over before that step's commit (T31).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..messages import SlotId
from .node import TOKEN_BYTES, Namespace


@dataclass(frozen=True, slots=True)
class Window:
    """What a request's rings hold. `ids`: its tokens below `end` as int32 bytes; the other fields
    as above. `approx`: B34 generation. `session` is a hint and no part of what it is (D18)."""

    ns: Namespace
    ids: bytes
    start: int
    written: int
    approx: int
    session: str | None

    @property
    def end(self) -> int:
        return len(self.ids) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class WindowSource:
    """A window that serves a hit of `length` tokens, and the slot that holds it. `is_live`: a
    running request's, which can only be copied."""

    slot: SlotId
    length: int
    approx: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class RingShape:
    """`rows` is C, `window` W; sizes in tokens."""

    page_size: int
    rows: int
    window: int

    def lowest(self, window: Window) -> int:
        """The lowest hit whose window is held."""
        return max(window.start, window.written - self.rows + self.window - 1, 1)

    def serves(self, window: Window, tokens: array[int], limit: int) -> int:
        """The longest whole-page hit of at most `limit` tokens on the path of `tokens` whose window
        is held; 0 for none. Compares the last page first: most windows differ there."""
        size, lowest = self.page_size, self.lowest(window)
        length = min(limit, window.end) // size * size
        while length >= lowest:
            tail = tokens[length - size : length].tobytes()
            if window.ids.startswith(tail, (length - size) * TOKEN_BYTES) and (
                window.ids.startswith(tokens[:length].tobytes())
            ):
                return length
            length -= size
        return 0


@dataclass(slots=True, eq=False)
class _Warm:
    window: Window
    step: int | None  # newest step in flight that may write the slot


class WarmWindows:
    """Knows slots by id only; who may have a slot, and when, is the manager's business."""

    __slots__ = ("shape", "_kept", "_num_ready")

    def __init__(self, shape: RingShape) -> None:
        self.shape = shape
        self._kept: dict[SlotId, _Warm] = {}  # used last comes last
        self._num_ready = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[SlotId]:
        return iter(self._kept)

    @property
    def num_ready(self) -> int:
        """Windows whose slot can be had now."""
        return self._num_ready

    def keep(self, slot: SlotId, window: Window, step: int | None) -> bool:
        """Keep `window` in `slot`. False, and nothing is kept, when it serves no hit."""
        size = self.shape.page_size
        if window.end // size * size < self.shape.lowest(window):
            return False
        self._kept[slot] = _Warm(window, step)
        self._num_ready += step is None
        return True

    def find(
        self, ns: Namespace, tokens: array[int], limit: int, session: str | None, *, is_exact: bool
    ) -> WindowSource | None:
        """The window that serves the longest hit of at most `limit` tokens; of equals the least
        approximate, then one of the same session, then the one used last. `is_exact`: no
        approximate one. Pure."""
        best = (0, 0, False)
        found: WindowSource | None = None
        for slot, kept in self._kept.items():
            window = kept.window
            if kept.step is not None or window.ns != ns or (is_exact and window.approx):
                continue
            length = self.shape.serves(window, tokens, limit)
            rank = length, -window.approx, session is not None and window.session == session
            if length and (found is None or rank >= best):
                best = rank
                found = WindowSource(slot, length, window.approx, is_live=False)
        return found

    def take(self, slot: SlotId) -> None:
        """The slot goes to another owner: its window is no longer here."""
        self._num_ready -= self._kept.pop(slot).step is None

    def windows(self) -> Iterator[Window]:
        return (kept.window for kept in self._kept.values())

    def touch(self, slot: SlotId) -> None:
        """The window has been used and stays."""
        self._kept[slot] = self._kept.pop(slot)

    def release(self, sessions: frozenset[str], owner: Namespace) -> None:
        """Windows of these sessions in namespaces that begin with `owner` belong to none from now
        on, so they are among the first to be lost. What they serve is the same."""
        for kept in self._kept.values():
            window = kept.window
            if window.session in sessions and window.ns[: len(owner)] == owner:
                kept.window = replace(window, session=None)

    def reclaim(self) -> SlotId | None:
        """Lose the window that is worth least; its slot, or None when no slot can be had now."""
        newest = {_owner(kept.window): slot for slot, kept in self._kept.items()}
        first: SlotId | None = None
        for slot, kept in self._kept.items():
            if kept.step is not None:
                continue
            if kept.window.session is None or newest[_owner(kept.window)] != slot:
                first = slot
                break
            first = slot if first is None else first
        if first is not None:
            self.take(first)
        return first

    def committed(self, step: int) -> None:
        """Step `step` is complete: slots that waited for it or an earlier one can be had."""
        if self._num_ready == len(self._kept):
            return
        for kept in self._kept.values():
            if kept.step is not None and kept.step <= step:
                kept.step = None
                self._num_ready += 1

    def clear(self) -> list[tuple[SlotId, int | None]]:
        """Lose all; the slots, and the step that each has to wait for."""
        slots = [(slot, kept.step) for slot, kept in self._kept.items()]
        self._kept.clear()
        self._num_ready = 0
        return slots


def _owner(window: Window) -> tuple[Namespace, str | None]:
    return window.ns, window.session
