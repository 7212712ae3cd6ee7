"""Grammars at work in the scheduler process, beside its loop: nothing here waits. The vocabulary
is given: making one stops all threads (`mask.py` says for how long), so it is made at start.

Owns the threads' work: compiled grammars, the last `KEPT` of them; and one job at a time for each
request.

    Matching.start -> compile (or a kept one) -> first row      `poll` gives each row once,
    Matching.took(tokens) --------------------> next row        `wake` is called when one is there

The executor is given: threads in the server, and in tests whatever makes an order repeatable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from ..errors import BadRequest
from ..token_masks import Grammar
from .mask import Matcher, NextRow, Prototype, Vocabulary

KEPT = 128  # compiled grammars; kilobytes each as a rule

Built = tuple[Prototype | None, str]  # the string says why there is none


class GrammarStore:
    def __init__(
        self, vocabulary: Vocabulary, executor: Executor, wake: Callable[[], None]
    ) -> None:
        """`wake` is called in any thread."""
        self._vocabulary = vocabulary
        self._executor = executor
        self._wake = wake
        self._compiled: OrderedDict[Grammar, Future[Built]] = OrderedDict()

    def start(self, grammar: Grammar, stop_ids: frozenset[int], *, jumps: bool) -> Matching:
        """A new request; see `Prototype.start`."""
        return Matching(self._built(grammar), stop_ids, self._executor, self._wake, jumps=jumps)

    def _built(self, grammar: Grammar) -> Future[Built]:
        built = self._compiled.get(grammar)
        if built is None:
            built = self._executor.submit(_build, grammar, self._vocabulary)
            self._compiled[grammar] = built
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return built


def _build(grammar: Grammar, vocabulary: Vocabulary) -> Built:
    try:
        return Prototype(grammar, vocabulary), ""
    except BadRequest as e:
        return None, e.message


class Matching:
    """One request. Between `start` or `took` and the row that `poll` gives, a job is on its way."""

    __slots__ = ("_stop_ids", "_executor", "_wake", "_jumps", "_matcher", "_job")

    def __init__(
        self,
        built: Future[Built],
        stop_ids: frozenset[int],
        executor: Executor,
        wake: Callable[[], None],
        *,
        jumps: bool,
    ) -> None:
        self._stop_ids = stop_ids
        self._executor = executor
        self._wake = wake
        self._jumps = jumps
        self._matcher: Matcher | None = None
        self._job: Future[NextRow] | None = None
        built.add_done_callback(self._begin)

    def poll(self) -> NextRow | None:
        """The row that the last call asked for, once it is there. It is given once."""
        job = self._job
        if job is None or not job.done():
            return None
        self._job = None
        return job.result()

    def took(self, token_ids: Sequence[int], drafts: Sequence[int] = ()) -> None:
        """Sampled ids, which rows of `poll` allowed, and guesses at what follows them."""
        assert self._matcher is not None
        self._submit(self._matcher.after, token_ids, drafts)

    def _begin(self, built: Future[Built]) -> None:
        """In the thread that compiled, or in the caller's."""
        if not built.cancelled():
            self._submit(self._first, built)

    def _first(self, built: Future[Built]) -> NextRow:
        prototype, error = built.result()
        if prototype is None:
            return NextRow(error=error)
        self._matcher = prototype.start(self._stop_ids, jumps=self._jumps)
        return self._matcher.first()

    def _submit(self, work: Callable[..., NextRow], *arguments: object) -> None:
        job = self._executor.submit(work, *arguments)
        self._job = job  # from here on another thread's `poll` may take it
        job.add_done_callback(lambda _: self._wake())
