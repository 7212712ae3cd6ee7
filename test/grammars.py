"""Vocabularies and executors for tests of grammars: everything runs when the test says so."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from treadle.srt.grammar.mask import Vocabulary
from treadle.srt.grammar.store import GrammarStore
from treadle.srt.token_masks import TokenBytes

EOS = 7


def pieces(size: int = 200) -> list[bytes]:
    """ASCII one by one (id 7 is the EOS) and some longer pieces that JSON is made of."""
    longer = [
        b'{"',
        b'": ',
        b'", "',
        b'"}',
        b'": "',
        b"name",
        b"true",
        b"false",
        b"null",
        b'", ',
    ] * 2
    return [bytes([i]) for i in range(128)] + longer + [b""] * (size - 128 - len(longer))


def table(spelled: Sequence[bytes], eos: Sequence[int] = (EOS,)) -> TokenBytes:
    data = b"".join(spelled)
    return TokenBytes(
        lengths=array("i", map(len, spelled)),
        data=array("i", data + b"\0" * (-len(data) % 4)),
        special_ids=array("i", eos),
        eos_ids=array("i", eos),
    )


class InlineExecutor(Executor):
    """Work is done when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        run(future, fn, args)
        return future


class HeldExecutor(Executor):
    """Work is done when the test asks for it, oldest first."""

    def __init__(self) -> None:
        self.held: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.held.append((future, fn, args))
        return future

    def work(self, count: int = 1 << 30) -> None:
        while self.held and count:
            count -= 1
            run(*self.held.popleft())


def run(future: Future[Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        future.set_result(fn(*args))
    except Exception as e:
        future.set_exception(e)


def make_store(executor: Executor, size: int = 200) -> GrammarStore:
    return GrammarStore(Vocabulary(table(pieces(size)), size), executor, lambda: None)
