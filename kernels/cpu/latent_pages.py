"""Rows of several requests, one request after the other with the C++ operators.

Specification: `reference/latent_pages.py`.
"""

from __future__ import annotations

from torch import Tensor

from ..reference import latent_pages as reference
from ..reference.latent_pages import Choice, Pages, Parts, Rings
from . import block_float, compressor, indexer, latent_attention

PARTS = Parts(
    latent_attention.latent_attention,
    block_float.decode_rows,
    indexer.index_scores,
    indexer.select_entries,
    indexer.candidate_blocks,
    compressor.pool_pairs,
)


def attend_pages(
    q: Tensor, new: Tensor, rings: Rings, pages: Pages | None, chosen: Tensor, sink: Tensor
) -> Tensor:
    """See `reference.latent_pages.attend_pages`."""
    return reference.attend_runs(q, new, rings, pages, chosen, sink, PARTS)


def choose_entries(
    q: Tensor, weight: Tensor, pages: Pages, choice: Choice, candidates: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """See `reference.latent_pages.choose_entries`."""
    return reference.choose_runs(q, weight, pages, choice, candidates, PARTS)


def pool_rows(values: Tensor, gates: Tensor, tail: Tensor, runs: Tensor) -> Tensor:
    """See `reference.latent_pages.pool_rows`."""
    return reference.pool_runs(values, gates, tail, runs, PARTS)
