"""Many runs of one program: at most so many at once, results in the order of the arguments.

`PrefixGate` stands before the first request of each run: the first two prompts that come to it show
what all have in common, and when that is worth it, it is computed once before all go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, as_completed
from typing import TypeVar

from tqdm import tqdm

from ..client.errors import ClientError
from .asker import Asker
from .prompt import ChatPrompt, Prompt, TextPrompt

T = TypeVar("T")

MIN_SHARED_CHARS = 64
SECOND_S = 0.05  # how long the first prompt waits for another one to be compared with


def num_at_once(asked: int | str) -> int:
    """The cap of `num_threads`: "auto" is that of SGLang."""
    if asked == "auto":
        return max(96, 16 * (os.cpu_count() or 1))
    return max(1, int(asked))


class PrefixGate:
    """Lives on the background loop."""

    def __init__(self, num_runs: int) -> None:
        self._num_left = num_runs  # runs that have neither come here nor ended
        self._first: Prompt | None = None
        self._second = asyncio.Event()
        self._opened: asyncio.Task[None] | None = None
        self._other: Prompt | None = None

    async def enter(self, prompt: Prompt, asker: Asker) -> None:
        self._num_left -= 1
        if self._opened is None:
            self._first = prompt
            self._opened = asyncio.ensure_future(self._open(asker))
        elif self._other is None:
            self._other = prompt
            self._second.set()
        await asyncio.shield(self._opened)

    def leave(self) -> None:
        self._num_left -= 1
        if self._num_left <= 0:
            self._second.set()

    async def _open(self, asker: Asker) -> None:
        """A commit that fails is no run's error: the runs themselves will tell."""
        if self._num_left > 0:
            try:
                await asyncio.wait_for(self._second.wait(), SECOND_S)
            except TimeoutError:
                return
        if self._first is None or self._other is None:
            return
        shared = common_prompt(self._first, self._other)
        if shared is not None:
            try:
                await asker.commit(shared)
            except ClientError:
                return


def common_prompt(one: Prompt, other: Prompt) -> Prompt | None:
    """What both begin with, when it is long enough to be computed apart."""
    if isinstance(one, TextPrompt) and isinstance(other, TextPrompt):
        text = os.path.commonprefix([one.text, other.text])
        return TextPrompt(text) if len(text) > MIN_SHARED_CHARS else None
    if not isinstance(one, ChatPrompt) or not isinstance(other, ChatPrompt):
        return None
    if one.tools != other.tools or one.variables != other.variables:
        return None
    pairs = zip(one.messages, other.messages, strict=False)
    shared = []
    for first, second in pairs:
        if first != second:
            break
        shared.append(first)
    size = sum(map(_size, shared))
    if size <= MIN_SHARED_CHARS:
        return None
    return ChatPrompt(tuple(shared), "message", one.tools, one.variables)


def _size(message: Mapping[str, object]) -> int:
    return len(str(message.get("content") or ""))


def in_order(futures: Sequence[Future[T]], *, has_bar: bool) -> list[T]:
    """Results; the bar counts them as they come."""
    if has_bar:
        for _ in tqdm(as_completed(futures), total=len(futures), unit="run"):
            pass
    return [future.result() for future in futures]
