"""Chunks of OpenAI streams, cheap enough to be made per token.

The part of a chunk that never changes is spelled once; a delta costs one escaping of its text and
one join. Object order is fixed by us; clients parse JSON.
"""

from __future__ import annotations

import orjson

from ..net.sse import DATA, END
from ..tokenizer.trail import Ending
from .usage import UsageSum

_OPENING = b',"choices":[{"index":%d,'


class ChunkSpelling:
    """One stream's chunks: `{id, object, created, model, choices, usage?}`."""

    def __init__(
        self, head: dict[str, object], usage: UsageSum, *, has_running_usage: bool
    ) -> None:
        self._head = DATA + orjson.dumps(head)[:-1]
        self._usage = usage
        self._has_running_usage = has_running_usage
        self._first = self._begin(0, b"")
        self._going_on = b',"finish_reason":null}]}' + END

    def choice(
        self, index: int, fields: bytes, ending: Ending | None = None, top: bytes = b""
    ) -> bytes:
        """A chunk with one choice. `fields` is JSON members of the choice, without braces; `top`
        is members of the chunk, each after a comma.
        """
        begin = self._first if index == 0 and not top else self._begin(index, top)
        if ending is None and not self._has_running_usage:
            return begin + fields + self._going_on
        end = b',"finish_reason":null' if ending is None else _ending_members(ending)
        return b"".join((begin, fields, end, b"}]", self._running_usage(), b"}", END))

    def closing(self, members: dict[str, object]) -> bytes:
        """A chunk without choices, for what is told of all of them."""
        return self._head + b',"choices":[],' + orjson.dumps(members)[1:] + END

    def _begin(self, index: int, top: bytes) -> bytes:
        return self._head + top + _OPENING % index

    def _running_usage(self) -> bytes:
        if not self._has_running_usage:
            return b""
        return b',"usage":' + orjson.dumps(self._usage.body())


def _ending_members(ending: Ending) -> bytes:
    return b',"finish_reason":%b,"matched_stop":%b' % (
        orjson.dumps(ending.reason),
        orjson.dumps(ending.matched),
    )
