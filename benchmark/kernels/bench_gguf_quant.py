"""Expansion of GGUF blocks: `python benchmark/kernels/bench_gguf_quant.py [--threads 2]`.

Eight million weights of each type; GB/s of float32 written.
"""

from __future__ import annotations

import torch
from timing import seconds, set_threads

from treadle.kernels.ops import dequantize
from treadle.kernels.reference.gguf_quant import BLOCK_FORMATS

NUM_WEIGHTS = 1 << 23


def main() -> None:
    set_threads("GGUF blocks")
    for ggml_type, block in BLOCK_FORMATS.items():
        raw = torch.zeros(NUM_WEIGHTS // block.num_weights * block.num_bytes, dtype=torch.uint8)
        best, median = seconds(lambda t=ggml_type, r=raw: dequantize(r, t, NUM_WEIGHTS), 3)  # type: ignore[misc]
        speed = f"{NUM_WEIGHTS * 4 / best / 1e9:5.1f} GB/s"
        print(f"{block.name:5} best {best * 1e3:7.2f} ms median {median * 1e3:7.2f} ms {speed}")


if __name__ == "__main__":
    main()
