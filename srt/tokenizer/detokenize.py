"""Ids to text as they come, and the search for stop strings in that text.

Owns two small automata of a running answer; both live as long as the request does.

    id --Detokenizer.push--> certain text --StopMatcher.push--> text that may be sent

A `Detokenizer` holds back the bytes of an unfinished character, so no U+FFFD comes from a cut.
Invariant: pushed texts plus `flush` equal `Tokenizer.decode` of all ids.
A `StopMatcher` holds back the longest end of the text that may be the beginning of a stop string.
Invariant: what it emits depends on the text only, never on where the text was cut.
"""

from __future__ import annotations

import codecs

from .encode import Tokenizer


class Detokenizer:
    """`after_prompt`: the ids go on from a prompt, so a leading space belongs to the text; without
    it the dummy space that SentencePiece models put before a text is taken away, as in `decode`.
    `shown` are special ids that are not skipped.
    """

    __slots__ = ("_decoder", "_drops_space", "_hidden", "_is_between", "_tokenizer")

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool,
        after_prompt: bool,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        special = tokenizer.special_ids if skip_special else frozenset[int]()
        self._hidden = special - shown if shown else special
        self._drops_space = tokenizer.has_dummy_prefix and not after_prompt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_between = True  # characters: the decoder holds nothing back

    def push(self, token_id: int) -> str:
        """The text that this id makes certain, often "" within a character."""
        if token_id in self._hidden:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if data and self._drops_space:
            self._drops_space = False
            data = data.removeprefix(b" ")
        if self._is_between and data.isascii():  # most tokens; a third of the decoder's time
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self._is_between = not self._decoder.getstate()[0]
        return text

    def flush(self) -> str:
        """At the end: an unfinished character becomes U+FFFD. Nothing may be pushed after it."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """The stop string that is complete first wins; of those complete at once, the longest.

    `keep`: the stop string itself is emitted too (`no_stop_trim`); nothing need be held back then.
    Empty stop strings never match.
    """

    __slots__ = ("_keeps", "_stops", "_tail", "matched")

    def __init__(self, stops: tuple[str, ...], *, keep: bool) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._keeps = keep
        self._tail = ""  # may begin a stop string; already emitted if `keep`
        self.matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """(text to emit, the stop string if one is complete). After a match nothing is emitted."""
        if self.matched is not None:
            return "", self.matched
        seen = self._tail + text
        emitted = len(self._tail) if self._keeps else 0
        end, length = self._first_end(seen)
        if length:
            self._tail = ""
            self.matched = seen[end - length : end]
            return seen[emitted : end if self._keeps else end - length], self.matched
        held = max((_overlap(seen, stop) for stop in self._stops), default=0)
        cut = len(seen) - held
        self._tail = seen[cut:]
        return seen[emitted : len(seen) if self._keeps else cut], None

    def flush(self) -> str:
        """At the end of an answer that no stop string ended: the text still held back."""
        held = "" if self._keeps else self._tail
        self._tail = ""
        return held

    def _first_end(self, seen: str) -> tuple[int, int]:
        """(end, length) of the match to take; length 0 when there is none."""
        best = (len(seen) + 1, 0)
        for stop in self._stops:
            start = seen.find(stop)
            if start >= 0:
                best = min(best, (start + len(stop), -len(stop)))
        return best[0], -best[1]


def _overlap(seen: str, stop: str) -> int:
    """Length of the longest end of `seen` that is a beginning of `stop`, all of it excluded."""
    for length in range(min(len(stop) - 1, len(seen)), 0, -1):
        if seen.endswith(stop[:length]):
            return length
    return 0
