"""Messages <-> frames. Frame 0 is the JSON of `[tag, fields]`; each array, also a nested one, is
a further frame of raw little-endian int32 or float64, and its place in the JSON holds its number.

Owns no sockets. The tags are those of `messages.TAGS`; nothing is looked up by a name that came in.
Invariant: `decode(encode(m)) == m` (NaN aside), and any other bytes raise `WireError`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Any, cast

import orjson

from ..messages import TAGS, Message
from .typed import TYPECODES, Frames, WireError, reader_of

_TAG_OF = {cls: tag for tag, cls in TAGS.items()}
_READERS = {tag: reader_of(cls) for tag, cls in TAGS.items()}


def encode(message: Message) -> list[bytes]:
    """Raises WireError where JSON cannot hold a value: a lone surrogate, an int beyond 64 bits."""
    tag = _TAG_OF.get(type(message))
    if tag is None:
        raise WireError(f"not a message: {type(message).__name__}")
    frames = [b""]
    try:
        frames[0] = orjson.dumps([tag, message], default=_array_writer(frames))
    except (TypeError, ValueError) as e:
        raise WireError(f"cannot encode {type(message).__name__}: {e}") from None
    return frames


def decode(frames: Frames) -> Message:
    if not frames:
        raise WireError("a message without frames")
    try:
        head = orjson.loads(frames[0])
    except orjson.JSONDecodeError as e:
        raise WireError(f"not JSON: {e}") from None
    if type(head) is not list or len(head) != 2 or type(head[0]) is not str:
        raise WireError("the first frame is not [tag, fields]")
    reader = _READERS.get(head[0])
    if reader is None:
        raise WireError(f"unknown message tag {head[0]!r}")
    return cast(Message, reader(head[1], frames[1:]))


def _array_writer(frames: list[bytes]) -> Callable[[Any], int]:
    """orjson calls this for what it does not know; the array moves to a frame of its own."""

    def write(value: Any) -> int:
        if not isinstance(value, array) or value.typecode not in TYPECODES.values():
            raise TypeError(f"{type(value).__name__} is no wire type")
        if sys.byteorder == "big":
            value = array(value.typecode, value)
            value.byteswap()
        frames.append(value.tobytes())
        return len(frames) - 2

    return write
