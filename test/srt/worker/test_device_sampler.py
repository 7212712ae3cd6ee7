"""Sampling of all rows at once: each row as the reference sampler takes it alone."""

from __future__ import annotations

import math
from array import array
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from test.srt.worker.test_sampler import params
from treadle.srt.messages import SamplingParams
from treadle.srt.token_masks import TokenMask
from treadle.srt.worker.device_sampler import DeviceSampler
from treadle.srt.worker.draws import lay_out
from treadle.srt.worker.sampler import sample
from treadle.srt.worker.state import SamplerSlot

CPU = torch.device("cpu")
VOCAB = 3000
PROMPT, OUTPUT = [3, 4, 5, 5], [9, 9, 10]
KINDS = [
    params(temperature=0.0),
    params(),
    params(seed=7, temperature=2.0),
    params(top_k=5),
    params(top_p=0.3),
    params(min_p=0.2, seed=4),
    params(top_k=50, top_p=0.5, min_p=0.01),
    params(top_p=0.999, temperature=3.0),
    params(top_k=1),
    params(temperature=0.0, repetition_penalty=4.0),
    params(frequency_penalty=2.0, presence_penalty=1.0, repetition_penalty=0.8),
    params(temperature=0.0, logit_bias=((17, 50.0), (18, 60.0), (19, -9.0))),
    params(temperature=0.0, min_new_tokens=9, stop_token_ids=(17, 18), logit_bias=((17, 50.0),)),
]


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(len(KINDS), VOCAB, generator=torch.Generator().manual_seed(0)) * 3


def state(params: SamplingParams, num_output: int = 3) -> SamplerSlot:
    return SamplerSlot(params, None, num_output, frozenset(PROMPT), Counter(OUTPUT))


def mask(slot: int, allowed: list[int], size: int = VOCAB) -> TokenMask:
    words = np.zeros(-(-size // 32), dtype=np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << token % 32)
    return TokenMask(slot, array("i", words.view(np.int32).tolist()))


def draw(logits: Tensor, kinds: list[SamplingParams], masks: tuple[TokenMask, ...]) -> list[int]:
    sampler = DeviceSampler(CPU, len(kinds), VOCAB)
    for slot, kind in enumerate(kinds):
        if kind.has_penalties:
            sampler.begin(slot, PROMPT, OUTPUT)
    states = [state(kind) for kind in kinds]
    tokens = sampler.sample(logits, lay_out(range(len(kinds)), states, masks, VOCAB))
    ids: list[int] = tokens.ids.tolist()
    return ids


def test_rows_together_are_the_reference_rows_alone(logits: Tensor):
    alone = [
        sample(row[None], [state(x)]).token_ids[0] for row, x in zip(logits, KINDS, strict=True)
    ]
    assert draw(logits, KINDS, ()) == alone


@pytest.mark.parametrize("size", [VOCAB, 100])
def test_masked_rows_are_the_reference_rows(logits: Tensor, size: int):
    """C20: also where a bias or a ban leaves nothing, and where the grammar knows fewer ids."""
    masks = tuple(mask(i, [17, 40, 41 + i, 90], size) for i in range(1, len(KINDS)))
    alone = []
    for i, (row, kind) in enumerate(zip(logits, KINDS, strict=True)):
        one = state(kind)
        for m in masks[i - 1 : i] if i else ():
            one.constrain(m)
        alone.append(sample(row[None], [one]).token_ids[0])
    assert draw(logits, KINDS, masks) == alone
    ban = params(temperature=0.0, min_new_tokens=9, stop_token_ids=(17,))
    assert draw(logits[:1], [ban], (mask(0, [17]),)) == [17]
    nothing = torch.full((1, VOCAB), -math.inf)
    nothing[0, 5] = 1.0
    assert draw(nothing, [params(temperature=0.0)], (mask(0, [33, 34]),)) == [33]


def test_counts_grow_with_what_is_output(logits: Tensor):
    sampler = DeviceSampler(CPU, 2, VOCAB)
    kind = params(temperature=0.0, frequency_penalty=100.0)
    sampler.begin(1, PROMPT, [])
    seen = []
    for step in range(4):
        draws = lay_out([1], [state(kind, step)], (), VOCAB)
        tokens = sampler.sample(logits[:1], draws)
        sampler.took(np.array([1]), tokens.ids)
        seen.append(int(tokens.ids))
    assert len(set(seen)) == 4
    sampler.begin(1, PROMPT, [])
    again = sampler.sample(logits[:1], lay_out([1], [state(kind, 0)], (), VOCAB))
    assert int(again.ids) == seen[0]


def test_row_that_is_not_finite_is_said(logits: Tensor):
    """T13."""
    logits[2, 5] = math.nan
    logits[4] = -math.inf
    states = [state(x) for x in KINDS]
    draws = lay_out(range(len(KINDS)), states, (), VOCAB)
    sampler = DeviceSampler(CPU, len(KINDS), VOCAB)
    for slot in (9, 10):
        sampler.begin(slot, PROMPT, OUTPUT)
    assert (~sampler.sample(logits, draws).finite).nonzero()[:, 0].tolist() == [2, 4]
