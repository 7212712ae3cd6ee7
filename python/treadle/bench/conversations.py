"""Made-up load: random prompts and prompts that share a prefix.

A conversation is a chain of turns; each turn says what is added to the prompt, and the server's
reply stands between. A single request is a conversation of one turn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .asks import Message, Prompt
from .vocabulary import Vocabulary

ROUTING_KEY = "X-SMG-Routing-Key"


@dataclass(frozen=True, slots=True)
class Turn:
    """`input_len`: tokens that it adds, as far as that is known before it is sent."""

    addition: Prompt
    input_len: int
    output_len: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """`at_s`: when a trace says that it begins; None where it says nothing."""

    turns: tuple[Turn, ...]
    at_s: float | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RandomLoad:
    """Lengths are uniform between `ratio` times the given one (1 at least) and the given one."""

    count: int
    input_len: int
    output_len: int
    ratio: float
    as_ids: bool


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """Groups of prompts, each with a system prompt of its own before every question. `zipf_alpha`
    0: all of the same size; else of as many prompts in all each has a group drawn for it, group n
    in proportion to n ** -alpha.
    """

    groups: int
    per_group: int
    system_len: int
    question_len: int
    output_len: int
    num_turns: int
    sends_routing_key: bool
    as_ids: bool
    zipf_alpha: float


def random_load(load: RandomLoad, words: Vocabulary, rng: random.Random) -> list[Conversation]:
    """Raises ValueError for ids without a tokenizer."""
    found = []
    for _ in range(load.count):
        input_len = _length(rng, load.input_len, load.ratio)
        output_len = _length(rng, load.output_len, load.ratio)
        prompt = _prompt(words, rng, input_len, as_ids=load.as_ids)
        found.append(Conversation((Turn(prompt, input_len, output_len),)))
    return found


def shared_load(load: SharedLoad, words: Vocabulary, rng: random.Random) -> list[Conversation]:
    """In shuffled order, so that groups mix. Raises ValueError for ids without a tokenizer."""
    systems = [_prompt(words, rng, load.system_len, as_ids=load.as_ids) for _ in range(load.groups)]
    found = []
    for group in _members(load, rng):
        key = ((ROUTING_KEY, f"group-{group}"),) if load.sends_routing_key else ()
        found.append(Conversation(_turns(load, words, rng, systems[group]), None, key))
    rng.shuffle(found)
    return found


def as_messages(conversations: Sequence[Conversation]) -> list[Conversation]:
    """For a chat: each added text becomes a user's message."""
    return [replace(c, turns=tuple(_spoken(turn) for turn in c.turns)) for c in conversations]


def total_turns(conversations: Sequence[Conversation]) -> int:
    return sum(len(conversation.turns) for conversation in conversations)


def _spoken(turn: Turn) -> Turn:
    text = turn.addition
    return replace(turn, addition=(Message("user", text),)) if isinstance(text, str) else turn


def _members(load: SharedLoad, rng: random.Random) -> list[int]:
    """The group of each prompt."""
    groups = range(load.groups)
    if not load.zipf_alpha:
        return [group for group in groups for _ in range(load.per_group)]
    weights = [(group + 1) ** -load.zipf_alpha for group in groups]
    return rng.choices(groups, weights, k=load.groups * load.per_group)


def _turns(
    load: SharedLoad, words: Vocabulary, rng: random.Random, system: Prompt
) -> tuple[Turn, ...]:
    def question() -> Prompt:
        if load.as_ids:
            return words.token_ids(rng, load.question_len + len(words.prefix))[len(words.prefix) :]
        return words.text(rng, load.question_len)

    first = _joined(system, question())
    turns = [Turn(first, load.system_len + load.question_len, load.output_len)]
    more = load.num_turns - 1
    turns += [Turn(question(), load.question_len, load.output_len) for _ in range(more)]
    return tuple(turns)


def _joined(first: Prompt, second: Prompt) -> Prompt:
    assert not isinstance(first, tuple) and not isinstance(second, tuple)
    if isinstance(first, str):
        assert isinstance(second, str)
        return first + second
    assert not isinstance(second, str)
    return first + second


def _length(rng: random.Random, longest: int, ratio: float) -> int:
    return rng.randint(max(1, int(longest * ratio)), max(1, longest))


def _prompt(words: Vocabulary, rng: random.Random, length: int, *, as_ids: bool) -> Prompt:
    return words.token_ids(rng, length) if as_ids else words.text(rng, length)
