"""Attention and selection over packed pages: `python benchmark/kernels/bench_latent_pages.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.ops import Choice, Pages, Rings, RowKind
from treadle.kernels.reference import latent_pages

HEADS, SIZE, WINDOW, CHOSEN, ENTRIES, PER_PAGE = 8, 64, 128, 32, 512, 64
INDEX_HEADS, INDEX_SIZE = 4, 32


def pages(kind: RowKind, size: int, requests: int) -> Pages:
    """Of requests whose next row stands at position `ENTRIES`."""
    number = torch.arange(requests)
    runs = torch.stack((number, number, torch.ones_like(number), number * 0 + ENTRIES - 1), 1)
    rows = ops.encode_rows(activations(ENTRIES, size), kind).view(
        -1, PER_PAGE, kind.row_bytes(size)
    )
    table = torch.arange(ENTRIES // PER_PAGE, dtype=torch.int32).repeat(requests, 1)
    return Pages(rows, kind, size, 1, table, runs, ENTRIES)


def rings(requests: int) -> Rings:
    number, start = torch.arange(requests), ENTRIES - 1
    fields = (
        number,
        number,
        number * 0 + 1,
        number,
        number * 0 + 1,
        number * 0 + start,
        number * 0,
    )
    rows = ops.encode_rows(activations(WINDOW, SIZE), RowKind.FP8).repeat(requests, 1, 1)
    held = torch.arange(start - WINDOW, start)
    tags = torch.empty(WINDOW, dtype=torch.int64)
    tags[held % WINDOW] = held
    return Rings(rows, tags.repeat(requests, 1), RowKind.FP8, SIZE, torch.stack(fields, 1), WINDOW)


def attention(requests: int) -> Case:
    q = activations(requests, HEADS * SIZE).view(requests, HEADS, SIZE)
    new = ops.encode_rows(activations(requests, SIZE), RowKind.FP8)
    chosen = torch.randperm(ENTRIES)[:CHOSEN].sort().values.repeat(requests, 1)
    far, near = pages(RowKind.NVFP4, SIZE, requests), rings(requests)
    args = (q, new, near, far, chosen, torch.zeros(HEADS))
    return Case(
        f"attend_pages B={requests}",
        lambda: ops.attend_pages(*args),
        lambda: latent_pages.attend_pages(*args),
        requests * (WINDOW * near.rows.shape[2] + CHOSEN * far.rows.shape[2]),
    )


def selection(requests: int) -> Case:
    q = activations(requests, INDEX_HEADS * INDEX_SIZE).view(requests, INDEX_HEADS, INDEX_SIZE)
    keys = pages(RowKind.MXFP4, INDEX_SIZE, requests)
    args = (q, activations(requests, INDEX_HEADS), keys, Choice(CHOSEN, 16, 4), None)
    return Case(
        f"choose_entries B={requests}",
        lambda: ops.choose_entries(*args),
        lambda: latent_pages.choose_entries(*args),
        requests * ENTRIES * keys.rows.shape[2],
    )


if __name__ == "__main__":
    set_threads("latent pages")
    print_cases([make(n) for make in (attention, selection) for n in (1, 8)])
