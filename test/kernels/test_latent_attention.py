"""Attention over a window and chosen entries: one softmax, a sink, nothing read that is unused."""

from __future__ import annotations

import torch

from treadle.kernels.reference.latent_attention import latent_attention


def rand(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(rows: int = 3, heads: int = 2, size: int = 8) -> tuple[torch.Tensor, ...]:
    q, window, entries = (
        rand(rows, heads, size, seed=1),
        rand(5, size, seed=2),
        rand(6, size, seed=3),
    )
    mask = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 1]]).bool()
    chosen = torch.tensor([[0, 3], [5, -1], [-1, -1]])
    return q, window, mask, entries, chosen, torch.tensor([0.3, -1.0], dtype=torch.float64)


def test_it_is_one_softmax_over_the_union_and_the_sink():
    q, window, mask, entries, chosen, sink = case()
    out = latent_attention(q, window, mask, entries, chosen, sink)
    for row in range(3):
        keys = torch.cat((window[mask[row]], entries[chosen[row][chosen[row] >= 0]]))
        for head in range(2):
            scores = keys @ q[row, head] * 8**-0.5
            weights = scores.exp() / (scores.exp().sum() + sink[head].exp())
            torch.testing.assert_close(out[row, head], weights @ keys)


def test_a_token_in_both_parts_counts_twice():
    q, window, mask, _, _, sink = case()
    twice = latent_attention(q, window, mask, window, torch.tensor([[0], [1], [2]]), sink)
    once = latent_attention(q, window, mask, window, torch.full((3, 1), -1), sink)
    assert (twice - once).abs().max() > 1e-3


def test_bytes_of_unused_entries_reach_nothing():
    q, window, mask, entries, chosen, sink = case()
    want = latent_attention(q, window, mask, entries, chosen, sink)
    entries[[1, 2, 4]] = torch.nan
    torch.testing.assert_close(latent_attention(q, window, mask, entries, chosen, sink), want)
    poisoned = entries.clone()
    poisoned[0] = torch.nan  # where -1 is clamped to
    unused = torch.full((3, 2), -1)
    assert latent_attention(q, window, mask, poisoned, unused, sink).isfinite().all()


def test_without_entries_only_the_window_is_read():
    q, window, mask, entries, _, sink = case()
    none = torch.full((3, 0), -1)
    empty = latent_attention(q, window, mask, entries[:0], none, sink)
    torch.testing.assert_close(empty, latent_attention(q, window, mask, entries, none, sink))
