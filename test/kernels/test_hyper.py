"""Hyper-connections: the published vector, and what collapse and expand mean."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import hyper as cpu
from treadle.kernels.inputs import strided
from treadle.kernels.reference import hyper
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import hyper as triton_module

triton = ops_of(triton_module)


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


def matrix(width: int, iterations: int = 20) -> hyper.HyperMatrix:
    generator = torch.Generator().manual_seed(width)
    fn = torch.randn(24, 4 * width, generator=generator) / (4 * width) ** 0.5
    base = torch.randn(24, generator=generator)
    return hyper.HyperMatrix(fn, base, torch.tensor([0.5, 1.0, 2.0]), iterations, 1e-20, 1e-6)


def streams(rows: int, width: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(rows, 4, width, generator=torch.Generator().manual_seed(7)) * scale


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
@pytest.mark.parametrize("rows", [0, 1, 70])
def test_cpu_weights_agree_with_the_reference(isa, rows, scale):
    for width, iterations in ((64, 20), (256, 1)):
        x, m = streams(rows, width, scale), matrix(width, iterations)
        for got, want in zip(cpu.hyper_weights(x, m), hyper.hyper_weights(x, m), strict=True):
            assert_close(got, want, "hyper")


def test_cpu_weights_of_one_hot_mixtures_agree(isa):
    """Logits far apart: exponentials that vanish."""
    m = matrix(64)
    m.base[8:] = torch.tensor([200.0, -200.0, 0.0, 3.0]).repeat(4)
    x = streams(5, 64)
    for got, want in zip(cpu.hyper_weights(x, m), hyper.hyper_weights(x, m), strict=True):
        assert_close(got, want, "hyper")


@pytest.mark.parametrize("rows", [0, 1, 70])
def test_cpu_collapses_and_expands_as_the_reference(isa, rows):
    x, m = streams(rows, 64), matrix(64)
    pre, post, comb = cpu.hyper_weights(x, m)
    y = streams(rows, 64)[:, 1] * 3
    assert_close(cpu.hyper_collapse(x, pre), hyper.hyper_collapse(x, pre), "hyper")
    want = hyper.hyper_expand(y, post, comb, x)
    assert_close(cpu.hyper_expand(y, post, comb, x), want, "hyper")
    assert_close(cpu.hyper_expand(strided(y), post.contiguous(), comb.clone(), x), want, "hyper")


def test_a_row_is_the_same_bits_in_any_batch(isa):
    x, m = streams(300, 256), matrix(256)
    pre, post, comb = cpu.hyper_weights(x, m)
    out = cpu.hyper_expand(cpu.hyper_collapse(x, pre), post, comb, x)
    for rows in (slice(0, 1), slice(7, 60), slice(299, 300)):
        part = cpu.hyper_weights(x[rows], m)
        for got, want in zip(part, (pre, post, comb), strict=True):
            assert torch.equal(got, want[rows])
        y = cpu.hyper_collapse(x[rows], part[0])
        assert torch.equal(cpu.hyper_expand(y, part[1], part[2], x[rows]), out[rows])


def test_cpu_refuses_sizes_that_disagree():
    with pytest.raises(ValueError, match="hyper_weights"):
        cpu.hyper_weights(streams(2, 32), matrix(64))


def test_other_streams_run_the_reference():
    x, m = streams(3, 64).double(), matrix(64)
    wide = hyper.HyperMatrix(m.fn.double(), m.base.double(), m.scale.double(), 20, 1e-20, 1e-6)
    assert cpu.hyper_weights(x, wide)[0].dtype is torch.float64
    three = cpu.hyper_collapse(streams(3, 64)[:, :3], torch.ones(3, 3))
    torch.testing.assert_close(three, streams(3, 64)[:, :3].sum(1))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
@pytest.mark.parametrize("rows", [0, 5])
def test_triton_weights_agree_with_the_reference(rows, scale):
    for width, iterations in ((32, 20), (80, 1)):
        x, m = streams(rows, width, scale), matrix(width, iterations)
        for got, want in zip(triton.hyper_weights(x, m), hyper.hyper_weights(x, m), strict=True):
            assert_close(got, want, "hyper")


@pytest.mark.parametrize("rows", [0, 1, 19])
def test_triton_collapses_and_expands_as_the_reference(rows):
    x, m = streams(rows, 80), matrix(80)
    pre, post, comb = hyper.hyper_weights(x, m)
    y = streams(rows, 80)[:, 1] * 3
    assert_close(triton.hyper_collapse(x, pre), hyper.hyper_collapse(x, pre), "hyper")
    want = hyper.hyper_expand(y, post, comb, x)
    assert_close(triton.hyper_expand(y, post, comb, x), want, "hyper")
    fused = torch.cat((pre, post, comb.flatten(1)), 1)
    parts = fused[:, 4:8], fused[:, 8:].view(rows, 4, 4)
    assert_close(triton.hyper_expand(strided(y), *parts, x), want, "hyper")


def test_triton_row_is_the_same_bits_in_any_batch():
    x, m = streams(20, 32), matrix(32)
    whole = triton.hyper_weights(x, m)
    for rows in (slice(0, 1), slice(7, 12), slice(19, 20)):
        for got, want in zip(triton.hyper_weights(x[rows], m), whole, strict=True):
            assert torch.equal(got, want[rows])
    with pytest.raises(ValueError, match="hyper_weights"):
        triton.hyper_weights(streams(2, 32), matrix(64))
