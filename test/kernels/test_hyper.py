"""Hyper-connections: the published vector, and what collapse and expand mean."""

from __future__ import annotations

import torch

from treadle.kernels.reference import hyper


def published() -> tuple[torch.Tensor, hyper.HyperMatrix]:
    """Appendix A of deepseek-v41.md."""
    base = torch.zeros(24)
    for i in range(4):
        for j in range(4):
            base[8 + 4 * i + j] = ((i * j) % 3) / 2
    u = (torch.arange(24) / 10 - 1)[None]
    fn = torch.zeros(24, 4)
    return u, hyper.HyperMatrix(fn, base, torch.tensor([0.5, 1.0, 2.0]), 20, 1e-20, 1e-6)


def test_weights_are_the_published_ones():
    pre, post, comb = hyper.mix_weights(*published())
    torch.testing.assert_close(
        pre[0], torch.tensor([0.377542, 0.389362, 0.401313, 0.413383]), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        post[0], torch.tensor([0.708687, 0.755081, 0.802625, 0.851115]), atol=1e-6, rtol=0
    )
    want = torch.tensor(
        [
            [0.298197, 0.201803, 0.201803, 0.298197],
            [0.201803, 0.225163, 0.371231, 0.201803],
            [0.201803, 0.371231, 0.225163, 0.201803],
            [0.298197, 0.201803, 0.201803, 0.298197],
        ]
    )
    torch.testing.assert_close(comb[0], want, atol=1e-6, rtol=0)


def test_one_iteration_counts_the_softmax_and_the_first_columns():
    u, matrix = published()
    once = hyper.HyperMatrix(matrix.fn, matrix.base, matrix.scale, 1, matrix.eps, matrix.floor)
    comb = hyper.mix_weights(u, once)[2][0]
    torch.testing.assert_close(comb.sum(0), torch.ones(4), atol=1e-5, rtol=0)
    assert (comb.sum(1) - 1).abs().max() > 1e-4


def test_the_statistic_is_over_all_streams_together():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 8, generator=generator)
    fn = torch.randn(24, 32, generator=generator)
    _, matrix = published()
    matrix = hyper.HyperMatrix(fn, matrix.base, matrix.scale, 20, 1e-20, 1e-6)
    plain, scaled = hyper.hyper_weights(x, matrix), hyper.hyper_weights(x * 7, matrix)
    for a, b in zip(plain, scaled, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    louder = x * torch.tensor([1.0, 1.0, 1.0, 7.0])[None, :, None]
    assert (
        hyper.hyper_weights(louder, matrix)[0] - hyper.hyper_weights(x, matrix)[0]
    ).abs().max() > 0.01


def test_expand_mixes_by_the_first_index():
    x = torch.arange(8.0).view(1, 4, 2)
    comb = torch.zeros(1, 4, 4)
    comb[0, 2, 1] = 1.0  # old stream 2 goes to new stream 1
    out = hyper.hyper_expand(torch.ones(1, 2), torch.tensor([[0.0, 10.0, 0.0, 0.0]]), comb, x)
    assert out[0].tolist() == [[0, 0], [14, 15], [0, 0], [0, 0]]
    assert hyper.hyper_collapse(x, torch.tensor([[1.0, 0.0, 0.0, 2.0]])).tolist() == [[12, 15]]
