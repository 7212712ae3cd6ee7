"""Drafts are accepted without a loss: each token comes as often as without them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from treadle.srt.messages import SamplingParams
from treadle.srt.worker.sampler import draw_draft, sample
from treadle.srt.worker.state import Drafted, SamplerSlot
from treadle.srt.worker.verify import accept_or_draw, pick, uniform

SIZE = 6
DRAWS = 6000
LIMIT = 20.5  # chi-square of 5 degrees of freedom is above it one time in a thousand


def slot(seed: int, **changes: object) -> SamplerSlot:
    params = SamplingParams(max_new_tokens=99, seed=seed, **changes)  # type: ignore[arg-type]
    return SamplerSlot(params, None, 0, frozenset(), Counter())


def chi_square(counts: Counter[int], wanted: Tensor) -> float:
    total = sum(counts.values())
    pairs = [(counts[i], float(p) * total) for i, p in enumerate(wanted) if p > 0]
    assert sum(count for count, _ in pairs) == total, "a token that cannot come has come"
    return sum((count - expected) ** 2 / expected for count, expected in pairs)


@pytest.fixture
def target() -> Tensor:
    return torch.tensor([1.2, 0.3, -0.5, 0.9, -1.0, 0.1])


@pytest.fixture
def guess() -> Tensor:
    return torch.tensor([0.2, 1.3, -0.5, 1.9, -3.0, 0.4])


def test_rule_gives_the_wanted_distribution_and_accepts_what_it_can(target, guess):
    p, q = torch.softmax(target.double(), 0), torch.softmax(guess.double(), 0)
    counts: Counter[int] = Counter()
    accepted = 0
    for seed in range(DRAWS):
        draft = pick(q, uniform(seed, 0, 1))
        token = accept_or_draw(p, q, draft, seed, 0)
        counts[token] += 1
        accepted += token == draft
    assert chi_square(counts, p) < LIMIT
    assert accepted / DRAWS == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.02)


def test_equal_distributions_accept_every_draft(target):
    p = torch.softmax(target.double(), 0)
    for seed in range(300):
        draft = pick(p, uniform(seed, 3, 1))
        assert accept_or_draw(p, p, draft, seed, 3) == draft


@pytest.mark.parametrize("is_fed", [True, False])
@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 0.6}, {"top_p": 0.7}, {"top_k": 3, "temperature": 1.5}]
)
def test_tokens_come_as_often_as_without_drafts(target, guess, changes, is_fed):
    """Whether a row was run for the draft or it was cut."""
    counts: Counter[int] = Counter()
    plain: Counter[int] = Counter()
    for seed in range(DRAWS // 2):
        state = slot(seed, **changes)
        draft = draw_draft(guess, state, 0)
        state.drafted = Drafted(0, (draft,), guess[None], 1)
        rows = target.repeat(1 + is_fed, 1)
        counts[sample(rows, [state], [[draft] if is_fed else []]).token_ids[0]] += 1
        plain[sample(target[None], [slot(seed, **changes)]).token_ids[0]] += 1
    state = slot(0, **changes)
    row = target.double() / state.params.temperature
    wanted = torch.softmax(row, 0)
    keep = torch.tensor([plain[i] > 0 for i in range(SIZE)])
    wanted = torch.where(keep, wanted, 0.0)
    wanted = wanted / wanted.sum()
    assert chi_square(counts, wanted) < LIMIT
    assert chi_square(plain, wanted) < LIMIT


def test_second_token_is_drawn_given_the_first(target, guess):
    """Two places: the pair comes as often as from the chain of both distributions."""
    first = torch.softmax(target.double(), 0)
    pairs: Counter[int] = Counter()
    for seed in range(DRAWS):
        state = slot(seed)
        d0 = draw_draft(guess, state, 0)
        second_guess = guess.roll(d0)
        d1 = draw_draft(second_guess, state, 1)
        state.drafted = Drafted(0, (d0, d1), torch.stack((guess, second_guess)), 2)
        rows = torch.stack((target, target.roll(d0), target))
        out = sample(rows, [state], [[d0, d1]])
        tokens = out.token_ids
        if out.counts == [1]:  # the first was rejected: the next step has no draft
            tokens = [*tokens, sample(target.roll(tokens[0])[None], [state]).token_ids[0]]
        pairs[tokens[0] * SIZE + tokens[1]] += 1
    table = torch.stack([first[i] * torch.softmax(target.double().roll(i), 0) for i in range(SIZE)])
    assert chi_square(pairs, table.flatten()) < 66.6  # of 35 degrees, one time in a thousand


def test_greedy_accepts_while_the_best_token_is_the_draft():
    rows = torch.eye(4, 6)[[2, 3, 1, 0]]
    state = slot(1, temperature=0.0)
    out = sample(rows, [state], [[2, 3, 5]])
    assert out.token_ids == [2, 3, 1] and out.counts == [3]
    assert state.num_output == 3


def test_later_rows_see_accepted_drafts_as_output():
    """Penalties, the ban of early stops: each place as if its tokens had come one by one."""
    rows = torch.tensor([[2.0, 1.9, 0.0], [2.0, 1.9, 0.0], [2.0, 1.9, 1.8]])
    state = slot(1, temperature=0.0, presence_penalty=0.5)
    out = sample(rows, [state], [[0, 1]])
    assert out.token_ids == [0, 1, 2]
    banned = slot(1, temperature=0.0, min_new_tokens=2, stop_token_ids=(0,))
    assert sample(rows, [banned], [[1, 1]]).token_ids == [1, 1, 0]


def test_a_row_that_is_not_finite_ends_the_span_before_it():
    rows = torch.eye(3, 4)
    rows[1, 2] = torch.nan
    out = sample(rows, [slot(1, temperature=0.0)], [[0, 1]])
    assert out.token_ids == [0] and out.bad == []
    rows[0, 0] = torch.nan
    assert sample(rows, [slot(1, temperature=0.0)], [[0, 1]]).bad == [0]


def test_draws_without_a_draft_are_those_of_a_plain_request(target):
    state = slot(5)
    state.drafted = Drafted(7, (1,), target[None], 1)  # of another index
    expected = [sample(target[None], [slot(5)]).token_ids[0]]
    assert sample(target[None], [state]).token_ids == expected


def test_streams_of_numbers_differ():
    numbers = {uniform(s, i, stream) for s in range(9) for i in range(9) for stream in range(3)}
    assert len(numbers) == 243
