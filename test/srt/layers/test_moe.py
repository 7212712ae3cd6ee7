"""Experts of several ranks: what each gives adds up to what one rank with all of them gives."""

from __future__ import annotations

import pytest
import torch

from test.v41 import CHECKPOINTS, builder_of
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader.packed import PackedWeights
from treadle.srt.loader.share import WHOLE, Share

NANO = CHECKPOINTS / "v41-nano"


def moe(share: Share):
    config = load_model_config(NANO)
    weights = PackedWeights.open(NANO, config)
    builder = builder_of(config, weights, share=share)
    return builder.moe("layers.3.ffn.", config.latent.moe)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_routed_outputs_of_all_ranks_sum_to_the_whole(size):
    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(5))
    parts = [moe(Share(rank, size)).routed(x) for rank in range(size)]
    whole = moe(WHOLE).routed(x)
    assert all(part.abs().max() > 0 for part in parts)
    assert torch.allclose(sum(parts), whole, atol=1e-5)


def test_a_rank_holds_its_experts_only():
    part, whole = moe(Share(1, 4)), moe(WHOLE)
    assert (part.experts.first, part.experts.count) == (2, 2)
    blocks = len(part.experts.gate_up.data)
    assert torch.equal(part.experts.gate_up.data, whole.experts.gate_up.data[blocks : 2 * blocks])
    blocks = len(part.experts.down.data)
    assert torch.equal(part.experts.down.scales, whole.experts.down.scales[blocks : 2 * blocks])
