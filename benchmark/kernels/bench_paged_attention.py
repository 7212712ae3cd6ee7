"""Attention through pages: `python benchmark/kernels/bench_paged_attention.py [--threads 2]`.

Gemma 3 270M's three global layers and the thirty of SmolLM2 135M, pages of 16 positions scattered
over the pool. Each call reads another layer, as a step does, so that no cache holds the pages. The
peer is torch's `scaled_dot_product_attention` on dense keys gathered beforehand (free of charge).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from timing import seconds, set_threads

from treadle.kernels.attention_inputs import Pages, Shape, make_pages
from treadle.kernels.ops import paged_attention

GEMMA = Shape(heads=4, kv_heads=1, head_dim=256)
SMOLLM = Shape(heads=9, kv_heads=3, head_dim=64)
PAGE_SIZE = 16
NUM_LAYERS = 6


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    shape: Shape
    requests: int
    rows: int  # of each request
    history: int  # positions before them


LOADS = (
    Load("gemma 512 to 4k", GEMMA, 1, 512, 3584),
    Load("gemma decode 1 at 4k", GEMMA, 1, 1, 4095),
    Load("gemma decode 8 at 3k", GEMMA, 8, 1, 3000),
    Load("smollm cold 512", SMOLLM, 1, 512, 0),
    Load("smollm decode 1 at 1k", SMOLLM, 1, 1, 1000),
    Load("smollm decode 8 at 1k", SMOLLM, 8, 1, 1000),
)


def layer_pages(load: Load, dtype: torch.dtype, layer: int) -> Pages:
    ends = [load.history + load.rows] * load.requests
    pages = make_pages(load.shape, ends, PAGE_SIZE, dtype, seed=layer)
    for pool in (pages.k, pages.v):
        pool.copy_(torch.randn(pool.shape))
    return pages


def products(load: Load) -> int:
    """Multiplications with keys and values that rows need."""
    seen = sum(range(load.history + 1, load.history + load.rows + 1))
    return 2 * load.requests * seen * load.shape.heads * load.shape.head_dim


def time_ours(load: Load, dtype: torch.dtype) -> tuple[float, float]:
    layers = itertools.cycle([layer_pages(load, dtype, i) for i in range(NUM_LAYERS)])
    q = torch.randn(load.requests * load.rows, load.shape.heads, load.shape.head_dim)
    runs = torch.tensor([
        [i + 1, i * load.rows, load.rows, load.history] for i in range(load.requests)
    ])  # fmt: skip

    def call() -> None:
        pages = next(layers)
        paged_attention(q, pages.k, pages.v, pages.table, runs, load.shape.scale)

    return seconds(call)


def time_torch(load: Load) -> tuple[float, float]:
    keys = load.history + load.rows
    heads, head_dim = load.shape.heads, load.shape.head_dim
    q = torch.randn(load.requests, heads, load.rows, head_dim)
    k, v = (torch.randn(load.requests, heads, keys, head_dim) for _ in range(2))
    mask = torch.arange(keys) <= torch.arange(load.history, keys)[:, None]
    return seconds(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), 9)


def main() -> None:
    set_threads("attention through pages")
    for load in LOADS:
        peer = time_torch(load)[0] * 1e6
        for dtype in (torch.float32, torch.bfloat16):
            best, median = time_ours(load, dtype)
            keys = (load.history + load.rows) * load.requests
            num_bytes = 2 * keys * load.shape.kv_heads * load.shape.head_dim * dtype.itemsize
            print(
                f"{load.name:22}{str(dtype)[6:]:9} best {best * 1e6:9.1f} us median "
                f"{median * 1e6:9.1f} us {products(load) / best / 1e9:6.1f} GMAC/s "
                f"{num_bytes / best / 1e9:6.1f} GB/s  torch {peer:9.1f} us"
            )


if __name__ == "__main__":
    main()
