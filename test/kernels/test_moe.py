"""Routing and the clamped activation."""

from __future__ import annotations

import torch

from treadle.kernels.reference import moe


def test_bias_chooses_and_never_scales():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    chosen, weights = moe.route(logits, torch.tensor([0.0, 0.0, 0.0, 9.0]), 2, 1.5)
    assert chosen.tolist() == [[3, 0]]
    scores = torch.sqrt(torch.log1p(torch.exp(torch.tensor([-1.0, 2.0]))))
    torch.testing.assert_close(weights[0], scores / scores.sum() * 1.5)


def test_ties_go_to_the_lower_expert():
    assert moe.route(torch.zeros(1, 5), torch.zeros(5), 3, 1.0)[0].tolist() == [[0, 1, 2]]


def test_the_gate_is_capped_above_and_the_other_on_both_sides():
    gate, up = torch.tensor([50.0, -50.0, 1.0]), torch.tensor([50.0, 2.0, -50.0])
    out = moe.clamped_swiglu(gate, up, 10.0)
    silu = torch.nn.functional.silu
    want = torch.stack(
        [
            silu(torch.tensor(10.0)) * 10,
            silu(torch.tensor(-50.0)) * 2,
            silu(torch.tensor(1.0)) * -10,
        ]
    )
    torch.testing.assert_close(out, want)
