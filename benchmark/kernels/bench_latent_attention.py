"""Attention over latents: `python benchmark/kernels/bench_latent_attention.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import latent_attention

HEADS, SIZE, WINDOW, CHOSEN, ENTRIES = 8, 64, 128, 32, 512


def case(rows: int) -> Case:
    q = activations(rows, HEADS * SIZE).view(rows, HEADS, SIZE)
    keys = WINDOW + rows - 1
    window, entries = activations(keys, SIZE), activations(ENTRIES, SIZE)
    position, row = torch.arange(keys), torch.arange(rows)[:, None]
    mask = (position >= row) & (position < row + WINDOW)
    chosen = torch.randint(0, ENTRIES, (rows, CHOSEN)).sort(1).values
    args = (q, window, mask, entries, chosen, torch.zeros(HEADS))
    return Case(
        f"latent_attention M={rows}",
        lambda: ops.latent_attention(*args),
        lambda: latent_attention.latent_attention(*args),
        rows * (WINDOW + CHOSEN) * SIZE * 4,
    )


if __name__ == "__main__":
    set_threads("latent attention")
    print_cases([case(num_rows) for num_rows in (1, 8, 128)])
