"""Chunks of OpenAI streams, cheap enough to be made per token.

The part of a chunk that never changes is spelled once; a delta costs one escaping of its text and
one join. Object order is fixed by us; clients parse JSON.
"""

from __future__ import annotations

import orjson

from ..net.sse import DATA, END
from ..tokenizer.trail import Ending
from .usage import UsageSum


class ChunkSpelling:
    """One stream's chunks: `{id, object, created, model, choices, usage?}`."""

    def __init__(
        self, head: dict[str, object], usage: UsageSum, *, has_running_usage: bool
    ) -> None:
        self._head = DATA + orjson.dumps(head)[:-1]
        self._usage = usage
        self._has_running_usage = has_running_usage
        self._tail = b"}]}" + END

    def choice(
        self, index: int, fields: bytes, ending: Ending | None = None, top: bytes = b""
    ) -> bytes:
        """A chunk with one choice. `fields` is JSON members of the choice, without braces; `top`
        is members of the chunk, each after a comma.
        """
        return b"".join(
            (
                self._head,
                top,
                b',"choices":[{"index":%d,' % index,
                fields,
                b',"finish_reason":null' if ending is None else _ending_members(ending),
                self._running_tail() if self._has_running_usage else self._tail,
            )
        )

    def usage(self) -> bytes:
        """The chunk without choices that a client asked for."""
        return (
            self._head + b',"choices":[],"usage":' + orjson.dumps(self._usage.body()) + b"}" + END
        )

    def _running_tail(self) -> bytes:
        return b'}],"usage":' + orjson.dumps(self._usage.body()) + b"}" + END


def _ending_members(ending: Ending) -> bytes:
    return b',"finish_reason":%b,"matched_stop":%b' % (
        orjson.dumps(ending.reason),
        orjson.dumps(ending.matched),
    )
