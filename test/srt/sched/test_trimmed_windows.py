"""Windows of requests whose decoder layers ran the last rows of a prompt only (B17), and whom they
serve: whoever is given one finds every row that it looks for, or the worker says so (S5)."""

from __future__ import annotations

import random

import pytest

from test.engine import Engine
from test.v41 import CHECKPOINTS

NANO = CHECKPOINTS / "v41-nano"


def prompt(size: int, seed: int = 1) -> list[int]:
    return random.Random(seed).choices(range(17, 273), k=size)


def engine(**options) -> Engine:
    return Engine(NANO, quantization="none", warm=4, **options)


def test_a_next_turn_goes_on_in_the_window_that_is_there():
    served = engine()
    first = served.answer(prompt(300), 9)
    longer = [*prompt(300), *first.token_ids, *prompt(30, seed=2)]
    usage = served.answer(longer, 4).usage
    assert usage.cached_tokens == 308 and usage.replayed_tokens == 0


@pytest.mark.parametrize("size", [300, 299, 290, 250, 170])
def test_a_shorter_prompt_is_not_given_a_window_that_lacks_its_rows(size):
    """The decoder's rings begin 128 rows before the end of the donor's prompt, not of its hit."""
    served = engine()
    served.answer(prompt(300), 5)
    edited = [*prompt(300)[: size - 3], *prompt(3, seed=3)]
    assert served.answer(edited, 3).usage.prompt_tokens == size


def test_a_scored_prompt_runs_all_rows_and_takes_no_trimmed_window():
    served = engine()
    first = served.answer(prompt(300), 9)
    longer = [*prompt(300), *first.token_ids, *prompt(8, seed=2)]
    scored = served.answer(longer, 2, logprob_start=len(longer) - 4, replay_mode="bounded")
    assert scored.usage.replayed_tokens > 0


def test_turns_edits_and_repeats_at_random_never_miss_a_row():
    rng, served = random.Random(5), engine(running=2)
    known = [prompt(n, seed=n) for n in (180, 300, 431)]
    for turn in range(25):
        base = rng.choice(known)
        cut = rng.randint(len(base) // 2, len(base))
        tail = prompt(rng.choice([0, 1, 40, 150]), seed=turn) if cut == len(base) else [17 + turn]
        asked = [*base[:cut], *tail]
        answer = served.answer(asked, rng.randint(1, 6))
        known.append([*asked, *answer.token_ids])
        known = known[-4:]
