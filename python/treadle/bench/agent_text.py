"""The prompts of one session: what a trace spells, with what the server said in its place.

A turn's prompt begins with parts of earlier texts (the trace's runs) and goes on with tokens of its
own. Earlier outputs are the server's, as an agent sends them back, or as recorded: then tokens that
the trace spells stand for them, of the same number. Turns that were not played are always spelled.
Copies of a session have no token in common but the prefix that the model wants.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from .asks import Message, Prompt, Reading
from .traces import Session, Speller, Turn
from .vocabulary import Vocabulary


class SessionText:
    """`copy` tells this play of the session from all others. With `is_chat` prompts are messages:
    what the trace calls prompt is the user's, outputs are the assistant's.
    """

    def __init__(
        self, session: Session, copy: int, words: Vocabulary, *, is_chat: bool, is_live: bool
    ) -> None:
        self._prompts = {turn.owner: turn.prompt for turn in session.turns}
        self._copy = copy
        self._words = words
        self._is_chat = is_chat
        self._is_live = is_live
        self._speller = Speller()
        self._ids: dict[int, list[int]] = {}  # by owner, with the output
        self._replies: dict[int, str] = {}

    def prompt(self, turn: Turn) -> Prompt:
        if self._is_chat:
            return tuple(self._messages(turn))
        return array("i", self._known(turn)[: turn.prompt])

    def note(self, turn: Turn, said: Reading) -> None:
        """Raises ValueError where ids are needed that the server does not send."""
        if not self._is_live:
            return
        if self._is_chat:
            self._replies[turn.owner] = said.text
            return
        if said.output_ids is None:
            raise ValueError("this backend sends no output ids: use --replies recorded")
        text = self._known(turn)
        end = turn.prompt + len(said.output_ids[: turn.output])
        self._ids[turn.owner] = [
            *text[: turn.prompt], *said.output_ids[: turn.output], *text[end:]
        ]  # fmt: skip

    def _known(self, turn: Turn) -> list[int]:
        """Ids of prompt and output, the output as the trace spells it."""
        ids = self._words.spelled(self._speller.ids(turn, self._copy))
        for owner, start, end in turn.runs[:-1]:
            if owner in self._ids:
                ids[start:end] = self._ids[owner][start:end]
        prefix = self._words.prefix
        ids[: len(prefix)] = prefix[: len(ids)]
        return ids

    def _messages(self, turn: Turn) -> Iterator[Message]:
        """Neighbours of one role are one message, as templates want it."""
        role, text = "user", ""
        for next_role, piece in self._pieces(turn):
            if next_role != role:
                yield Message(role, text.strip())
                role, text = next_role, ""
            text += piece
        yield Message(role, text.strip())

    def _pieces(self, turn: Turn) -> Iterator[tuple[str, str]]:
        spelled = self._speller.ids(turn, self._copy)
        for owner, start, end in turn.runs:
            border = self._prompts[owner]
            if start < min(end, border):
                yield "user", self._words.worded(spelled[start : min(end, border)])
            if owner != turn.owner and end > border:
                live = self._replies.get(owner)
                yield "assistant", live or self._words.worded(spelled[max(start, border) : end])
