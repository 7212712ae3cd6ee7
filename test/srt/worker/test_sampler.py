"""Sampling: filters against a naive sort, seeds, penalties, logprobs."""

from __future__ import annotations

import math
from array import array
from collections import Counter

import pytest
import torch
from torch import Tensor

from treadle.srt.messages import SamplingParams
from treadle.srt.token_masks import TokenMask
from treadle.srt.worker.sampler import sample
from treadle.srt.worker.state import SamplerSlot
from treadle.srt.worker.verify import uniform

VOCAB = 3000


def slot(params: SamplingParams, num_output: int = 0, top: int | None = None) -> SamplerSlot:
    return SamplerSlot(params, top, num_output, frozenset(), Counter())


def params(**changes: object) -> SamplingParams:
    return SamplingParams(max_new_tokens=10, **{"seed": 1} | changes)  # type: ignore[arg-type]


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0)) * 2


def allowed(row: Tensor, p: SamplingParams) -> set[int]:
    """Ids that top-k, top-p and min-p leave, by sorting the whole vocabulary."""
    probs, order = torch.softmax(row.double() / p.temperature, 0).sort(descending=True)
    kept, before = set(), 0.0
    for rank, (prob, token) in enumerate(zip(probs.tolist(), order.tolist(), strict=True)):
        if (p.top_k != -1 and rank >= p.top_k) or before >= p.top_p:
            break
        if prob < p.min_p * float(probs[0]):
            break
        kept.add(token)
        before += prob
    return kept


def draws(logits: Tensor, p: SamplingParams, count: int) -> list[int]:
    state = slot(p)
    return [sample(logits, [state]).token_ids[0] for _ in range(count)]


@pytest.mark.parametrize(
    "changes",
    [
        {"top_k": 5},
        {"top_p": 0.3},
        {"min_p": 0.2},
        {"top_k": 50, "top_p": 0.5, "min_p": 0.01},
        {"top_p": 0.999, "temperature": 3.0},  # needs more than the first candidates
        {"min_p": 1e-4, "temperature": 2.0},
    ],
)
def test_draws_stay_inside_the_filters(logits: Tensor, changes: dict[str, float]):
    p = params(**changes)
    inside = allowed(logits[0], p)
    seen = set(draws(logits, p, 400))
    assert seen <= inside
    assert len(seen) > 1


def test_draws_follow_the_distribution():
    row = torch.tensor([[0.0, math.log(2), math.log(5)]])
    count = Counter(draws(row, params(), 8000))
    for token, share in enumerate((1 / 8, 2 / 8, 5 / 8)):
        assert abs(count[token] / 8000 - share) < 0.02


def test_temperature_zero_is_the_best_token(logits: Tensor):
    assert draws(logits, params(temperature=0.0), 3) == [int(logits.argmax())] * 3


def test_same_seed_and_index_draw_the_same_in_any_batch(logits: Tensor):
    alone = [sample(logits, [slot(params(), i)]).token_ids[0] for i in range(20)]
    noise = torch.randn(4, VOCAB)
    for i in range(20):
        batch = torch.cat((noise, logits, noise))
        slots = [slot(params(seed=9), 3) for _ in range(4)] + [slot(params(), i)]
        slots += [slot(params(temperature=0.0)) for _ in range(4)]
        assert sample(batch, slots).token_ids[4] == alone[i]
    assert len(set(alone)) > 5


def test_uniform_is_spread_and_differs_by_seed_and_index():
    numbers = [uniform(s, i) for s in range(50) for i in range(50)]
    assert len(set(numbers)) == 2500
    assert abs(sum(numbers) / 2500 - 0.5) < 0.02
    assert all(0 <= x < 1 for x in numbers)
    assert uniform(-5, 0) != uniform(5, 0)


def test_repetition_penalty_covers_prompt_and_output():
    row = torch.tensor([[2.0, 1.9, -1.0, 1.5]])
    p = params(temperature=0.0, repetition_penalty=2.0)
    state = SamplerSlot(p, None, 0, frozenset({0}), Counter())
    assert sample(row, [state]).token_ids == [1]
    assert sample(row, [state]).token_ids == [3]  # 1 has now been put out


def test_frequency_and_presence_count_output_only():
    row = torch.tensor([[2.0, 1.0]])
    p = params(temperature=0.0, frequency_penalty=0.4, presence_penalty=0.3)
    state = SamplerSlot(p, None, 0, frozenset({0}), Counter())
    # 0 costs 0.3 + 0.4 per earlier output: 2.0, 1.3, then 0.9 < 1.0
    assert [sample(row, [state]).token_ids[0] for _ in range(3)] == [0, 0, 1]


def test_logit_bias_moves_the_choice(logits: Tensor):
    p = params(temperature=0.0, logit_bias=((7, 100.0),))
    assert draws(logits, p, 1) == [7]


def test_stop_tokens_are_banned_until_min_new_tokens():
    row = torch.tensor([[5.0, 1.0]])
    p = params(temperature=0.0, min_new_tokens=2, stop_token_ids=(0,))
    assert draws(row, p, 3) == [1, 1, 0]


def test_logprobs_are_of_the_raw_distribution(logits: Tensor):
    p = params(temperature=0.0, logit_bias=((7, 100.0),))
    (got,) = sample(logits, [slot(p, top=3)]).logprobs
    expected = torch.log_softmax(logits[0].double(), 0)
    assert got is not None
    assert got.logprob == pytest.approx(float(expected[7]))
    assert got.top_ids == tuple(expected.topk(3).indices.tolist())
    assert got.top_logprobs == pytest.approx(expected.topk(3).values.tolist())


def test_rows_that_are_not_finite_are_reported(logits: Tensor):
    """T13: the scheduler must not publish what they computed."""
    bad = logits.clone()
    bad[0, 5] = math.nan
    worse = torch.full_like(logits, math.inf)
    out = sample(torch.cat((logits, bad, worse)), [slot(params()) for _ in range(3)])
    assert out.bad == [1, 2]


def masked(slot: SamplerSlot, ids: list[int], words: int = -(-VOCAB // 32)) -> SamplerSlot:
    bits = array("I", [0] * words)
    for token in ids:
        bits[token // 32] |= 1 << token % 32
    slot.constrain(TokenMask(1, array("i", bits.tobytes())))
    return slot


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_mask_leaves_only_what_the_grammar_allows(logits: Tensor, temperature: float):
    best = int(logits[0].argmin())
    for index in range(40):
        state = masked(slot(params(temperature=temperature), index), [best, 31, 64])
        assert sample(logits, [state]).token_ids[0] in (best, 31, 64)
        assert state.allowed is None  # of one draw only


def test_ids_beyond_a_short_mask_are_forbidden(logits: Tensor):
    """Logits of a padded vocabulary."""
    padded = torch.cat([logits, torch.full((1, 50), 99.0)], dim=1)
    state = masked(slot(params(temperature=0.0)), [5])
    assert sample(padded, [state]).token_ids == [5]


def test_grammar_comes_before_a_bias_and_the_ban_of_early_stops(logits: Tensor):
    p = params(temperature=0.0, min_new_tokens=5, stop_token_ids=(9,), logit_bias=((8, -1e39),))
    assert sample(logits, [masked(slot(p), [9])]).token_ids == [9]
    assert sample(logits, [masked(slot(p), [8])]).token_ids == [8]
    better, worse = (100, 101) if logits[0, 100] > logits[0, 101] else (101, 100)
    both = params(temperature=0.0, logit_bias=((better, -1e39), (worse, -1e39)))
    assert sample(logits, [masked(slot(both), [100, 101])]).token_ids == [better]
    assert sample(logits, [masked(slot(p), [9, 10])]).token_ids == [10]


def test_logits_that_rule_out_all_that_is_allowed_do_not_break_the_grammar(logits: Tensor):
    logits[0, 7] = -math.inf
    assert sample(logits, [masked(slot(params(temperature=1.0)), [7])]).token_ids == [7]


def test_mask_changes_neither_logprobs_nor_neighbours(logits: Tensor):
    two = logits.repeat(2, 1)
    plain = sample(two, [slot(params(), top=3), slot(params(), top=3)])
    one = sample(two, [slot(params(), top=3), masked(slot(params(), top=3), [5])])
    assert one.token_ids == [plain.token_ids[0], 5]
    assert one.logprobs[0] == plain.logprobs[0]
    assert one.logprobs[1].top_ids == plain.logprobs[1].top_ids


def test_forced_ids_count_as_output(logits: Tensor):
    """The index of a draw and the penalties are those of a request that had sampled them."""
    p = params(frequency_penalty=2.0)
    forced, drawn = slot(p), slot(p)
    for token in (4, 4, 6):
        drawn.took(token)
    every = array("i", [-1] * (-(-VOCAB // 32)))
    forced.constrain(TokenMask(1, every, array("i", [4, 4, 6])))
    assert sample(logits, [forced]).token_ids == sample(logits, [drawn]).token_ids
    assert (forced.num_output, forced.output) == (drawn.num_output, drawn.output)


def test_processed_logprobs_are_of_the_distribution_drawn_from(logits: Tensor):
    p = params(temperature=0.5, logit_bias=((7, 3.0),), repetition_penalty=1.5)
    state = SamplerSlot(p, 2, 0, frozenset({11}), Counter())
    (got,) = sample(logits, [state], is_processed=True).logprobs
    row = logits[0].clone()
    row[11] = row[11] / 1.5 if row[11] > 0 else row[11] * 1.5
    row[7] += 3.0
    expected = torch.log_softmax(row.double() / 0.5, 0)
    assert got is not None
    assert got.top_ids == tuple(expected.topk(2).indices.tolist())
    assert got.top_logprobs == pytest.approx(expected.topk(2).values.tolist(), abs=1e-5)


def test_processed_logprobs_of_greedy_tokens_have_no_temperature(logits: Tensor):
    (raw,) = sample(logits, [slot(params(temperature=0.0), top=1)]).logprobs
    (processed,) = sample(
        logits, [slot(params(temperature=0.0), top=1)], is_processed=True
    ).logprobs
    assert raw == processed


def test_asked_ids_have_logprobs_beside_the_sampled_token(logits: Tensor):
    state = slot(params(temperature=0.0), top=0)
    state.logprob_ids = torch.tensor([5, 2])
    (got,) = sample(logits, [state]).logprobs
    expected = torch.log_softmax(logits[0].double(), 0)
    assert got is not None
    assert got.chosen == pytest.approx((float(expected[5]), float(expected[2])))


def test_min_p_holds_with_a_seed():
    """The pair that other servers refuse; draws are the same again."""
    row = torch.tensor([[3.0, 2.9, 0.0, -1.0]])
    p = params(min_p=0.5, seed=42)
    first = draws(row, p, 50)
    assert set(first) == {0, 1}
    assert draws(row, p, 50) == first
