"""One flag as a row: spelling, spellings of other servers, config field, kind, help.

Defaults are not here but in `srt/config.py`. What other servers have and we do not is a row in
`foreign.py`, so that no flag is ignored in silence. Parsing is `command_line.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    IMPLEMENTED = "implemented"
    ACCEPTED = "accepted"  # no effect; `why` is told in one line when it is used
    REFUSED = "refused"  # ends the launch with `why`, unless the value is one of `harmless`


class Kind(StrEnum):
    TEXT = "text"
    INT = "int"
    SIZE = "size"  # an int; k, m, g are powers of 1000, K, M, G of 1024
    FLOAT = "float"
    SWITCH = "switch"  # no argument
    WORDS = "words"  # one or more, kept separated by spaces


@dataclass(frozen=True, slots=True)
class Flag:
    """`aliases` mean the same and take the same values. `synonyms` maps other words for a choice.
    `field` is a path into ServerConfig, "" when there is none. `negation` is the spelling that
    sets a switch the other way, and `const` what the switch itself sets. `why` of an implemented
    flag is told when a synonym is used.
    """

    spelling: str
    field: str
    help: str
    kind: Kind = Kind.TEXT
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    const: bool | str = True
    negation: str = ""
    negative: bool | str = False
    status: Status = Status.IMPLEMENTED
    why: str = ""
    harmless: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.spelling, *self.aliases)


SWITCH, INT, SIZE, FLOAT = Kind.SWITCH, Kind.INT, Kind.SIZE, Kind.FLOAT
WORDS = Kind.WORDS
DTYPES = (("half", "float16"), ("float", "float32"), ("bf16", "bfloat16"), ("fp32", "float32"))
