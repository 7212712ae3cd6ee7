"""Grammars in terms of token ids, as values: what ids spell, and which of them may come next.

They are fields and messages of `messages.py`; apart from it because of its length only.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


def _ids() -> array[int]:
    return array("i")


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """What the ids spell: the scheduler has no tokenizer. `data` holds all bytes in a row, filled
    up with zeros to whole int32; an id that text never becomes has length 0.
    """

    lengths: array[int]
    data: array[int]
    special_ids: array[int]
    eos_ids: array[int]


@dataclass(frozen=True, slots=True)
class TokenMask:
    """Which ids a sampled span of `slot` may become: bit `i % 32` of word `i // 32` for id i; ids
    beyond the words may not. `forced` are output ids that were not sampled, since the last one.
    """

    slot: int
    words: array[int]
    forced: array[int] = field(default_factory=_ids)
