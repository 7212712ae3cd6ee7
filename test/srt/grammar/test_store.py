"""Work of grammars beside the scheduler's loop: when it is done, and what is kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from test.grammars import EOS, HeldExecutor, InlineExecutor, make_store, pieces, table
from treadle.srt.grammar.mask import Vocabulary
from treadle.srt.grammar.store import KEPT, GrammarStore
from treadle.srt.token_masks import Grammar, GrammarKind

STOPS = frozenset([EOS])


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


def test_row_is_there_when_its_work_is_done_and_is_given_once():
    executor = HeldExecutor()
    store = make_store(executor)
    matching = store.start(regex("ab?"), STOPS, jumps=True)
    assert matching.poll() is None
    executor.work()
    assert matching.poll() is not None
    assert matching.poll() is None
    matching.took([ord("a")])
    assert matching.poll() is None
    executor.work()
    row = matching.poll()
    assert row is not None
    assert not row.is_done


def test_grammar_is_compiled_once_and_each_request_has_its_own_state():
    executor = HeldExecutor()
    store = make_store(executor)
    first, second = (store.start(regex("ab?"), STOPS, jumps=True) for _ in range(2))
    assert len(executor.held) == 1  # one compilation
    executor.work()
    assert first.poll() == second.poll()
    first.took([ord("a")])
    executor.work()
    first.poll()
    third = store.start(regex("ab?"), STOPS, jumps=True)
    executor.work()
    row = third.poll()
    assert row is not None
    assert not row.error


def test_least_recently_used_grammars_are_dropped():
    store = make_store(InlineExecutor())
    store.start(regex("keep"), STOPS, jumps=True)
    first = store._compiled[regex("keep")]
    for i in range(KEPT + 5):
        store.start(regex("keep"), STOPS, jumps=True)
        store.start(regex(f"x{i}"), STOPS, jumps=True)
    kept = [grammar.text for grammar in store._compiled]
    assert len(kept) == KEPT
    assert store._compiled[regex("keep")] is first
    assert "x0" not in kept


def test_refusal_of_the_compiler_is_a_row_with_its_words():
    matching = make_store(InlineExecutor()).start(regex("(a"), STOPS, jumps=True)
    row = matching.poll()
    assert row is not None
    assert "unclosed group" in row.error


def test_threads_wake_the_loop_when_a_row_is_there():
    woken = threading.Semaphore(0)
    with ThreadPoolExecutor(2) as threads:
        store = GrammarStore(Vocabulary(table(pieces()), 200), threads, woken.release)
        matchings = [store.start(regex(f"a{i}"), STOPS, jumps=True) for i in range(20)]
        for _ in matchings:
            assert woken.acquire(timeout=30)
        assert all(matching.poll() is not None for matching in matchings)
