"""Bytes a token of prefix cache: without windows, and with one stored at every boundary.

    python -m benchmark.serving.bench_memory [--config FILE] [--every 256,128,64]

Nothing is timed: the figures are `cache/layout.py`'s, from a model's configuration alone, by
default that of the released DeepSeek-V4.1-Flash. A stored window is one of all layers of the
backbone; the draft layers' rings are left out, as they are never part of a prefix.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmark.environment import ROOT, Environment, write_result

from treadle.srt.cache.layout import KVLayout
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import CacheSection
from treadle.srt.model_config import ModelConfig

RELEASED = ROOT / "test" / "checkpoints" / "deepseek_v41_flash.json"


def read_config(path: Path) -> ModelConfig:
    """A configuration file of any name, as a checkpoint's folder would hold it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "config.json")
        return load_model_config(Path(folder))


def figures(model: ModelConfig, every: list[int]) -> dict[str, float]:
    """Bytes per token, by what is kept."""
    layout = KVLayout.from_config(model, CacheSection(kv_dtype="fp4", warm_windows=0), 0, 1)
    window = len(model.window_layers) * model.window * layout.rows.ring_row_bytes
    stored = {f"windows every {n} tokens": window / n for n in every}
    return {"global only": layout.token_bytes, "one window": float(window)} | stored


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=RELEASED)
    parser.add_argument("--every", default="256,128,64")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    args = parser.parse_args()
    found = figures(read_config(args.config), [int(x) for x in args.every.split(",")])
    kept = found["global only"]
    for name, size in found.items():
        print(f"{name:28} {size:14,.0f} bytes   {size / kept:10.1f} x")
    if args.out:
        settings = {"config": args.config.name, "every": args.every}
        content = {"environment": Environment.read(()), "settings": settings, "bytes": found}
        write_result(args.out, content)


if __name__ == "__main__":
    main()
