"""Attention of window layers: `python benchmark/kernels/bench_window_attention.py [--threads 2]`.

Gemma 3 270M's sizes: 4 query heads on one kv head of 256, window 512. Decode reads the rings of
layer after layer, as a step does, so that no cache holds them. The peer is torch's
`scaled_dot_product_attention` on dense keys that were gathered beforehand (free of charge).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from timing import seconds, set_threads
from torch import Tensor

from treadle.kernels.attention_inputs import Rings, Shape, make_rings, make_stream
from treadle.kernels.ops import window_attention

SHAPE = Shape(heads=4, kv_heads=1, head_dim=256)
WINDOW, RING_ROWS = 512, 528
NUM_LAYERS = 15


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    requests: int
    rows: int  # of each request
    history: int  # positions before them


LOADS = (
    Load("cold 512", 1, 512, 0),
    Load("cold 1024", 1, 1024, 0),
    Load("512 after 1024", 1, 512, 1024),
    Load("decode 1 at 3k", 1, 1, 3000),
    Load("decode 8 at 3k", 8, 1, 3000),
)


def layer_rings(load: Load, dtype: torch.dtype) -> Rings:
    """Rings that hold the last positions before the load's rows."""
    rings = make_rings(SHAPE, load.requests + 1, RING_ROWS, dtype)
    for pool in (rings.k, rings.v):
        pool.copy_(torch.randn(pool.shape))
    held = torch.arange(max(0, load.history - RING_ROWS), load.history)
    rings.tags[1:, held % RING_ROWS] = held
    return rings


def products(load: Load) -> int:
    """Multiplications with keys and values that rows in the band need."""
    seen = sum(min(p + 1, WINDOW) for p in range(load.history, load.history + load.rows))
    return 2 * load.requests * seen * SHAPE.heads * SHAPE.head_dim


def time_ours(load: Load, dtype: torch.dtype) -> tuple[float, float]:
    stream = make_stream(SHAPE, load.requests * load.rows, seed=0)
    layers = itertools.cycle([layer_rings(load, dtype) for _ in range(NUM_LAYERS)])
    runs = torch.tensor([
        [i + 1, i * load.rows, load.rows, i * load.rows, load.rows, load.history, 0]
        for i in range(load.requests)
    ])  # fmt: skip
    held = layer_rings(load, dtype).tags

    def call() -> None:
        rings = next(layers)
        if load.rows > RING_ROWS - WINDOW:  # the call has overwritten its own history
            rings.tags.copy_(held)
        pool = rings.k, rings.v, rings.tags
        window_attention(stream.q, stream.k, stream.v, *pool, runs, WINDOW, SHAPE.scale)
        rings.tags[1:, load.history % RING_ROWS] = held[1:, load.history % RING_ROWS]

    return seconds(call)


def time_torch(load: Load) -> tuple[float, float]:
    keys = min(load.history, WINDOW - 1) + load.rows
    q = torch.randn(load.requests, SHAPE.heads, load.rows, SHAPE.head_dim)
    k, v = (torch.randn(load.requests, SHAPE.heads, keys, SHAPE.head_dim) for _ in range(2))
    row = torch.arange(keys - load.rows, keys)[:, None]
    mask: Tensor = (torch.arange(keys) <= row) & (torch.arange(keys) > row - WINDOW)
    return seconds(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), 9)


def main() -> None:
    set_threads("window attention")
    for load in LOADS:
        peer = time_torch(load)[0] * 1e6
        for dtype in (torch.float32, torch.bfloat16):
            best, median = time_ours(load, dtype)
            keys = min(load.history + load.rows, WINDOW + load.rows) * load.requests
            num_bytes = 2 * keys * SHAPE.kv_heads * SHAPE.head_dim * dtype.itemsize
            print(
                f"{load.name:16}{str(dtype)[6:]:9} best {best * 1e6:9.1f} us median "
                f"{median * 1e6:9.1f} us {products(load) / best / 1e9:6.1f} GMAC/s "
                f"{num_bytes / best / 1e9:6.1f} GB/s  torch {peer:9.1f} us"
            )


if __name__ == "__main__":
    main()
