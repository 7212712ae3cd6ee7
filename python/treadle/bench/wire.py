"""What it takes to ask one kind of server and to read what it says. Pure: no I/O."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from .asks import Ask, Event, Json, Options, Prompt, Reading, Tiers

MAX_COUNT = (1 << 31) - 1


class Wire(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def is_chat(self) -> bool: ...

    def body(self, ask: Ask, options: Options) -> Json:
        """Raises ValueError for a prompt of a kind that this route does not take."""

    def read(self, events: Sequence[Event]) -> Reading:
        """Raises what `malformed.told` tells for events of another form."""


def prompt_field(prompt: Prompt, *, text: str, ids: str) -> Json:
    """Under the name for its kind. Raises ValueError for messages."""
    if isinstance(prompt, str):
        return {text: prompt}
    if isinstance(prompt, array):
        return {ids: prompt.tolist()}
    raise ValueError("messages are for a chat backend, such as openai-chat")


def checked(said: Reading) -> Reading:
    """Raises ValueError for counts that are none, of which nothing can be made."""
    tiers = said.tiers
    counts = [said.prompt_tokens, said.output_tokens, said.cached or 0, said.replayed]
    counts += [tiers.device, tiers.host, tiers.storage] if tiers else []
    counts += [*(count for _, count in said.arrivals), *(said.output_ids or ())]
    for count in counts:
        if type(count) is not int or not 0 <= count <= MAX_COUNT:
            raise ValueError(f"{str(count)[:40]!r} where a number of tokens or an id is expected")
    if not isinstance(said.text, str):
        raise ValueError("its text is none")
    return said


def read_tiers(told: Json | None) -> Tiers | None:
    if told is None:
        return None
    device, host, storage = (told.get(name) or 0 for name in ("device", "host", "storage"))
    return Tiers(device, host, storage, told.get("storage_backend"))
