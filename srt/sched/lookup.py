"""Drafts from a request's own tokens: what followed the newest ones when they came before.

    tokens   .. a b c d e f g .................. a b c | d      d: a draft that the head is sure of
                |=====|                          |=======|      longest match of the end
                        e f g                              -> proposed next

An agent copies much of what it has read: ids, keys, file contents. A draft head sees a window only
and guesses badly what lies further back; there this replaces what it is not sure of. A proposal is
verified like any draft, so the output is the same with any.

Nothing is indexed: `REACH` and `MAX_PLACES` bound the search to tens of microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

REACH = 8192  # newest tokens that are searched
MIN_MATCH, MAX_MATCH = 1, 8  # tokens before a proposal that must be, and are, compared
MAX_PLACES = 64  # of the last token, newest first, that are looked at


def with_lookup(tokens: array[int], drafts: Sequence[int], num_sure: int) -> Sequence[int]:
    """`drafts` of what follows `tokens`, those after the first `num_sure` replaced by what followed
    the same tokens before, where they came before."""
    sure = drafts[:num_sure]
    found = _continuation(tokens[-REACH:] + array("i", sure), len(drafts) - len(sure))
    proposed = [*sure, *found]
    return [*proposed, *drafts[len(proposed) :]]


def _continuation(recent: array[int], count: int) -> array[int]:
    """At most `count` tokens that came after the longest match of the end of `recent`, the newest
    of equally long ones; none without a match."""
    data, size = recent.tobytes(), recent.itemsize
    last = data[-size:]
    best, best_len = len(recent), MIN_MATCH - 1
    at = len(data) - size
    for _ in range(MAX_PLACES):
        at = _rfind(data, last, at, size)
        if at < 0 or not count:
            break
        length = _common_end(recent, at // size + 1)
        if length > best_len:
            best, best_len = at // size + 1, length
        if length == MAX_MATCH:
            break
    return recent[best : best + count]


def _rfind(data: bytes, item: bytes, end: int, size: int) -> int:
    """Offset of the last `item` in data[:end] at a multiple of `size`; -1 without."""
    at = data.rfind(item, 0, end)
    while at >= 0 and at % size:
        at = data.rfind(item, 0, at + size - 1)
    return at


def _common_end(recent: array[int], end: int) -> int:
    """Tokens, at most `MAX_MATCH`, in which recent[:end] and `recent` end alike."""
    most, size = min(end, MAX_MATCH), len(recent)
    for length in range(most):
        if recent[end - 1 - length] != recent[size - 1 - length]:
            return length
    return most
