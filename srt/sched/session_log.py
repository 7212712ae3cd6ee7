"""SessionLog: what the sessions heard of last have cost. For people to look at: it decides nothing.

A session is known by its name and the cache scope of its requests, so equal names of two tenants
stay apart. Only the `MOST` that spoke last are kept. Requests without a session are not here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ..cache.node import Namespace
from ..cache.warm import Window
from ..snapshot import SessionView
from .request import Request, RequestState

MOST = 256

_Key = tuple[Namespace, str]


@dataclass(slots=True, eq=False)
class _Tally:
    """Totals over ended requests; `last_at` is when one came, in seconds of the caller's clock."""

    last_at: float
    turns: int = 0
    prompt: int = 0
    cached: int = 0
    replayed: int = 0
    output: int = 0
    context: int = 0
    approx: int = 0


class SessionLog:
    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        self._tallies: OrderedDict[_Key, _Tally] = OrderedDict()  # spoke last comes last

    def arrived(self, request: Request, now: float) -> None:
        if request.session is None:
            return
        key = request.namespace, request.session
        tally = self._tallies.setdefault(key, _Tally(now))
        tally.last_at = now
        self._tallies.move_to_end(key)
        if len(self._tallies) > MOST:
            self._tallies.popitem(last=False)

    def ended(self, request: Request) -> None:
        """A request that was never admitted has cost nothing. Of one with several choices the
        prompt counts once (B37)."""
        if request.session is None or not request.was_admitted:
            return
        tally = self._tallies.get((request.namespace, request.session))
        if tally is None:
            return
        tally.output += request.num_output
        tally.context, tally.approx = request.len, request.approx
        if request.parent is None:
            tally.turns += 1
            tally.prompt += request.prompt_len
            tally.cached += request.cached
            tally.replayed += request.replayed

    def views(
        self, requests: Iterable[Request], windows: Iterable[Window], now: float, limit: int
    ) -> tuple[SessionView, ...]:
        """Those that spoke last first. `requests`: all that have not ended; `windows`: all kept."""
        running: Counter[_Key] = Counter()
        waiting: Counter[_Key] = Counter()
        for request in requests:
            if request.session is not None:
                is_running = request.state is RequestState.RUNNING
                (running if is_running else waiting)[request.namespace, request.session] += 1
        kept: dict[_Key, int] = {}
        for window in windows:
            if window.session is not None:
                key = window.ns, window.session
                kept[key] = max(kept.get(key, 0), window.end)
        newest = list(self._tallies.items())[: -limit - 1 : -1]
        return tuple(
            SessionView(
                session=key[1],
                running=running[key],
                waiting=waiting[key],
                turns=tally.turns,
                prompt_tokens=tally.prompt,
                cached_tokens=tally.cached,
                replayed_tokens=tally.replayed,
                output_tokens=tally.output,
                context_tokens=tally.context,
                window_tokens=kept.get(key, 0),
                approx=tally.approx,
                silent_s=now - tally.last_at,
            )
            for key, tally in newest
        )
