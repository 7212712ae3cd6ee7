"""Answers of an earlier run, by what was asked: a run that is resumed takes them from here.

A request is the same when its prompt, wishes and form are, whatever session it was in. Where the
same was asked several times, as by branches that sample, the answers come in their old order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

import orjson

from .backend import Answer, AnswerRequest, ScoreRequest, Scores
from .entry_json import asked_json
from .recorder import Asked, Entry, Told
from .tools import ToolCall, ToolResult

Json = dict[str, Any]


class Past:
    def __init__(self, entries: Iterable[Entry]) -> None:
        """Entries that have not ended, or ended in an error, are left out."""
        self._told: dict[bytes, deque[Told]] = defaultdict(deque)
        for entry in entries:
            if entry.told is not None and entry.kind != "commit":
                self._told[_key(entry.asked)].append(entry.told)

    def answers(self, request: AnswerRequest) -> Sequence[Answer] | None:
        return cast("Sequence[Answer] | None", self._take(request))

    def scores(self, request: ScoreRequest) -> Scores | None:
        return cast("Scores | None", self._take(request))

    def result(self, call: ToolCall) -> ToolResult | None:
        return cast("ToolResult | None", self._take(call))

    def _take(self, asked: Asked) -> Told | None:
        known = self._told.get(_key(asked))
        return known.popleft() if known else None


def _key(asked: Asked) -> bytes:
    form = asked_json(asked)
    form.pop("id", None)  # of a call: the server's to choose
    return orjson.dumps(form, option=orjson.OPT_SORT_KEYS)
