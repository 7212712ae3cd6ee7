"""One request's place in its grammar: which ids may come next, and which must.

Owns the vocabulary in llguidance's form and the meaning of an end:

- An EOS id is allowed where the answer may end, and only if the request stops at it.
- Where nothing but an end is allowed the row `is_done`: nothing is to be sampled any more.
- Forced ids spell what the grammar leaves no choice about, up to where the next id might reach
  beyond it. They are found by longest match, which for the pieces of JSON is the tokenizer's own
  way nearly always; masks follow the same spelling, so the ids do not depend on whether forced ids
  are asked for.

Thread-safe as far as a `Matcher` is used by one thread at a time; compiling and masking let other
threads run, making a `Vocabulary` does not.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ..arrays import ids
from ..token_masks import Grammar, TokenBytes
from .compile import limits, refusal, to_llguidance

SILENT = 0  # llguidance's level of logging to standard error
# The mask of these tokens is made once, with the vocabulary, and reused wherever a grammar allows
# them all: in JSON strings and free text. For Gemma's 262,144 ids a mask of free text takes 0.06 ms
# and not 3.8, for 0.3 s more at the start; llguidance's own four slices take 1 s and gain no more.
SLICES = [r'[^"\\\x00-\x1F\x7F]{1,30}']


@dataclass(frozen=True, slots=True)
class NextRow:
    """`forced` ids come first, then one of `words` (see `messages.TokenMask`) is sampled. `error`:
    the grammar cannot go on, in the compiler's words. `drafts`: of those that were given, the
    first that are allowed; `ahead` has the words after each.
    """

    words: array[int] = field(default_factory=ids)
    forced: tuple[int, ...] = ()
    is_done: bool = False
    error: str = ""
    drafts: tuple[int, ...] = ()
    ahead: tuple[array[int], ...] = ()


class Vocabulary:
    """llguidance's tokenizer for a model with `vocab_size` logits. Making it takes 1.1 s of CPU for
    262,144 ids and 0.15 s for 49,152, in which no other Python thread of the process runs.
    """

    def __init__(self, table: TokenBytes, vocab_size: int) -> None:
        source = _Source(table, vocab_size)
        self.tokenizer = _make_tokenizer(source)
        self.eos_ids = tuple(source.eos_ids)


class Prototype:
    """A compiled grammar, from which any number of matchers start."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        """Raises: BadRequest with the compiler's message."""
        self._kind = grammar.kind
        self._eos_ids = vocabulary.eos_ids
        text = to_llguidance(grammar)
        self._matcher = LLMatcher(vocabulary.tokenizer, text, log_level=SILENT, limits=limits())
        if self._matcher.is_error():
            raise refusal(self._kind, _brief(self._matcher.get_error()))

    def start(self, stop_ids: frozenset[int], *, jumps: bool) -> Matcher:
        """`stop_ids`: those that end this request. `jumps`: whether forced ids are wanted."""
        not_ends = tuple(i for i in self._eos_ids if i not in stop_ids)
        ends = tuple(i for i in self._eos_ids if i in stop_ids)
        return Matcher(self._matcher.deep_copy(), ends, not_ends, jumps=jumps)


class Matcher:
    __slots__ = ("_matcher", "_ends", "_not_ends", "_jumps")

    def __init__(
        self, matcher: LLMatcher, ends: Sequence[int], not_ends: Sequence[int], *, jumps: bool
    ) -> None:
        self._matcher = matcher
        self._ends = ends
        self._not_ends = not_ends
        self._jumps = jumps

    def first(self) -> NextRow:
        """Before any id. Nothing is forced here: the first id is sampled with the prompt's last
        row in any case."""
        return self._masked(())

    def after(self, token_ids: Sequence[int], drafts: Sequence[int] = ()) -> NextRow:
        """The row after more sampled ids. `drafts`: guesses at what follows them."""
        matcher = self._matcher
        if not matcher.consume_tokens(list(token_ids)):
            return self._failed()
        forced = matcher.compute_ff_tokens() if self._jumps else []
        del forced[matcher.validate_tokens(forced) :]
        if forced and not matcher.consume_tokens(forced):
            return self._failed()
        row = self._masked(tuple(forced))
        if list(drafts[: len(forced)]) != forced or row.is_done or row.error:
            return row
        return self._walked(row, drafts[len(forced) :])

    def _walked(self, row: NextRow, drafts: Sequence[int]) -> NextRow:
        """`row` with what may follow the first of `drafts`, up to one that is not allowed or with
        which the answer could not go on."""
        ahead, words, taken = [], row.words, 0
        for draft in drafts:
            if draft in self._ends or not _allows(words, draft):
                break
            if not self._matcher.consume_token(draft):
                break
            taken += 1
            after = self._masked(())
            if after.is_done or after.error:
                break
            words = after.words
            ahead.append(words)
        if taken and not self._matcher.rollback(taken):
            return self._failed()
        return replace(row, drafts=tuple(drafts[: len(ahead)]), ahead=tuple(ahead))

    def _masked(self, forced: tuple[int, ...]) -> NextRow:
        bits = bytearray(self._matcher.compute_bitmask())
        if self._matcher.is_error():
            return self._failed()
        _clear(bits, self._not_ends)
        is_done = self._has_only_ends(bits)
        return NextRow(_words(bits), forced, is_done=is_done)

    def _has_only_ends(self, bits: bytearray) -> bool:
        """Counting zero bytes first: a vocabulary has 32 kB of bits."""
        if len(bits) - bits.count(0) > len(self._ends):
            return False
        rest = bits[:]
        _clear(rest, self._ends)
        return rest.count(0) == len(rest)

    def _failed(self) -> NextRow:
        error = _brief(self._matcher.get_error())
        if error.startswith("NoExtension"):
            error = "no token of the vocabulary continues the answer"
        return NextRow(error=error)


def _allows(words: array[int], token: int) -> bool:
    return token // 32 < len(words) and bool(words[token // 32] >> token % 32 & 1)


def _clear(bits: bytearray, token_ids: Sequence[int]) -> None:
    for token in token_ids:
        bits[token // 8] &= ~(1 << token % 8)


def _words(bits: bytearray) -> array[int]:
    words = ids()
    words.frombytes(bits)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _brief(error: str) -> str:
    """llguidance adds the state of its parser, which is of no use to a client."""
    return error.partition("\n<")[0].strip()


def _make_tokenizer(source: _Source) -> LLTokenizer:
    tokenizer = LLTokenizer(TokenizerWrapper(source), eos_token=source.eos_ids, slices=SLICES)
    source.tokenizer = tokenizer
    return tokenizer


def _pieces(table: TokenBytes, vocab_size: int) -> list[bytes]:
    """Logits beyond the vocabulary spell nothing, so that no grammar allows them."""
    data = table.data.tobytes()
    pieces, start = [], 0
    for length in table.lengths:
        pieces.append(data[start : start + length])
        start += length
    return pieces[:vocab_size] + [b""] * (vocab_size - len(pieces))


class _Source:
    """What llguidance asks of a tokenizer. It needs an EOS, so a model without one gets an id that
    has no logit."""

    def __init__(self, table: TokenBytes, vocab_size: int) -> None:
        self.tokens = _pieces(table, vocab_size)
        self.eos_ids = list(table.eos_ids)
        if not self.eos_ids:
            self.eos_ids.append(vocab_size)
            self.tokens.append(b"<eos>")
        self.eos_token_id = self.eos_ids[0]
        self.bos_token_id = None
        self.special_token_ids = sorted({*table.special_ids, *self.eos_ids})
        self.tokenizer: LLTokenizer | None = None

    def __call__(self, text: bytes | str) -> list[int]:
        """Before `tokenizer` is set there is a probe only."""
        if self.tokenizer is None:
            return []
        found: list[int] = self.tokenizer.greedy_tokenize(
            text.decode("utf-8", "ignore") if isinstance(text, bytes) else text
        )
        return found
