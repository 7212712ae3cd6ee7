"""The text side of one choice: ids in, visible text and the reason to stop out.

    ids -> incremental detokeniser -> stop matcher (holds back a possible start of a stop string)

Owns which ids are hidden: the stop id that ended the request, unless the caller keeps stops.
Invariants: text once returned is never taken back; nothing after a stop string is ever returned;
no stop string counts before `min_new_tokens` ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..messages import Finish
from .detokenize import Detokenizer, StopMatcher
from .encode import Tokenizer


@dataclass(frozen=True, slots=True)
class TextRules:
    stop: tuple[str, ...] = ()
    keep_stop: bool = False  # show the stop string or stop id that ended the text
    skip_special_tokens: bool = True
    shown_ids: frozenset[int] = frozenset()  # special tokens that are shown nevertheless
    after_prompt: bool = True  # the text goes on from the prompt's, rather than being an answer


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a choice ended, as a client sees it: `matched` is the stop id or the stop string."""

    reason: str  # "stop", "length", "abort"
    matched: int | str | None = None
    message: str = ""


@dataclass(slots=True)
class Piece:
    """`num_ids` of the pushed ids belong to the choice; the rest came after a stop string.

    Not frozen, though nobody changes one: there is one for each token.
    """

    text: str
    num_ids: int
    stop: str | None


class TextTrail:
    def __init__(self, tokenizer: Tokenizer, rules: TextRules, min_new_tokens: int) -> None:
        self._detokenizer = Detokenizer(
            tokenizer,
            skip_special=rules.skip_special_tokens,
            after_prompt=rules.after_prompt,
            shown=rules.shown_ids,
        )
        self._matcher = StopMatcher(rules.stop, keep=rules.keep_stop) if rules.stop else None
        self._keep_stop = rules.keep_stop
        self._min_ids = min_new_tokens
        self._num_ids = 0

    def push(self, token_ids: Sequence[int], finish: Finish | None) -> Piece:
        """The text of new ids. With `finish` everything held back comes out too."""
        if finish is None and self._matcher is None:
            self._num_ids += len(token_ids)
            return Piece("".join(map(self._detokenizer.push, token_ids)), len(token_ids), None)
        parts: list[str] = []
        hidden = self._hidden_index(token_ids, finish)
        for i, token_id in enumerate(token_ids):
            self._num_ids += 1
            if i == hidden:
                continue
            stop = self._show(self._detokenizer.push(token_id), parts)
            if stop is not None:
                return Piece("".join(parts), i + 1, stop)
        if finish is None:
            return Piece("".join(parts), len(token_ids), None)
        stop = self._show(self._detokenizer.flush(), parts)
        if stop is None and self._matcher is not None:
            parts.append(self._matcher.flush())
        return Piece("".join(parts), len(token_ids), stop)

    def _hidden_index(self, token_ids: Sequence[int], finish: Finish | None) -> int:
        if finish is None or finish.reason != "stop" or self._keep_stop or not token_ids:
            return -1
        return len(token_ids) - 1 if token_ids[-1] == finish.matched else -1

    def _show(self, text: str, parts: list[str]) -> str | None:
        """Adds what may be seen of `text` to `parts`; returns the stop string it completed."""
        if not text:
            return None
        if self._matcher is None or self._num_ids <= self._min_ids:
            parts.append(text)
            return None
        visible, stop = self._matcher.push(text)
        parts.append(visible)
        return stop
