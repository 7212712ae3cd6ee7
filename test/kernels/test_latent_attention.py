"""Attention over a window and chosen entries: one softmax, a sink, nothing read that is unused."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import latent_attention as cpu
from treadle.kernels.reference.latent_attention import latent_attention
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import latent_attention as triton_module

triton = ops_of(triton_module)


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


def tile(rows: int, size: int = 64, chosen: int = 20) -> list[torch.Tensor]:
    """Rows of one request with a window of 40, as the runtime calls it."""
    keys = 40 + rows - 1
    position, row = torch.arange(keys), torch.arange(rows)[:, None]
    mask = (position >= row) & (position < row + 40)
    generator = torch.Generator().manual_seed(rows)
    places = torch.randint(-1, 30, (rows, chosen), generator=generator)
    q, window = rand(rows, 3, size, seed=1), rand(keys, size, seed=2)
    entries, sink = rand(30, size, seed=3), rand(3, seed=4)
    return [q.float(), window.float(), mask, entries.float(), places, sink.float()]


@pytest.mark.parametrize("chosen", [0, 20])
@pytest.mark.parametrize("size", [16, 64, 80])
@pytest.mark.parametrize("rows", [0, 1, 33])
def test_cpu_agrees_with_the_reference(isa, rows, size, chosen):
    args = tile(rows, size, chosen)
    assert_close(cpu.latent_attention(*args), latent_attention(*args), "latent")


def test_cpu_agrees_where_weights_vanish_and_where_nothing_is_seen(isa):
    args = tile(5)
    args[0] = args[0] * 100  # and the error of a score with it
    got, want = cpu.latent_attention(*args), latent_attention(*args)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    args[2], args[4] = torch.zeros_like(args[2]), torch.full((5, 20), -1)
    assert not cpu.latent_attention(*args).any()


def test_cpu_reads_no_entry_that_is_unused_and_shows_a_broken_one(isa):
    args = tile(3)
    args[4][:] = -1
    args[4][1, 0] = 7
    args[3][:] = torch.nan
    finite = cpu.latent_attention(*args).isfinite().all(2).all(1)
    assert finite.tolist() == [True, False, True]


def test_a_row_is_the_same_bits_in_any_batch(isa):
    """Also when the keys below its window are not there."""
    q, window, mask, entries, chosen, sink = tile(300)
    whole = cpu.latent_attention(q, window, mask, entries, chosen, sink)
    for start, end in ((0, 1), (7, 60), (299, 300)):
        rows, keys = slice(start, end), slice(start, end + 39)
        args = (q[rows], window[keys], mask[rows, keys], entries, chosen[rows], sink)
        assert torch.equal(cpu.latent_attention(*args), whole[rows])


def test_cpu_refuses_entries_that_do_not_exist_and_sizes_that_disagree():
    args = tile(3)
    args[4][0, 0] = 30
    with pytest.raises(IndexError, match="30"):
        cpu.latent_attention(*args)
    with pytest.raises(ValueError, match="window"):
        cpu.latent_attention(args[0], args[1][1:], *args[2:])


def test_cpu_runs_the_reference_on_other_dtypes():
    args = case()
    assert torch.equal(cpu.latent_attention(*args), latent_attention(*args))


@pytest.mark.parametrize("chosen", [0, 20])
@pytest.mark.parametrize("size", [16, 80])
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_triton_agrees_with_the_reference(rows, size, chosen):
    args = tile(rows, size, chosen)
    assert_close(triton.latent_attention(*args), latent_attention(*args), "latent")


def test_triton_reads_no_bytes_that_are_unused():
    args = tile(9)
    want = latent_attention(*args)
    used = args[4].flatten()
    unused = [e for e in range(30) if e not in used.tolist()]
    args[3][unused] = torch.nan
    args[3][0] = torch.nan
    args[4][args[4] == 0] = -1
    assert triton.latent_attention(*args).isfinite().all()
    args = tile(9)
    torch.testing.assert_close(triton.latent_attention(*args), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="latent_attention"):
        triton.latent_attention(args[0], args[1][:, :8], *args[2:])
