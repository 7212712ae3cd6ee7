"""Logits of a GGUF through our worker against transformers on the same file, teacher-forced.

transformers expands the file with code of its own and computes in float32. Prints, and writes to
`benchmark/results/parity-<name>.json`: mean and worst KL in nats (reference first) and top-1
agreement over the scored rows, for each way of keeping the weights.

    python -m benchmark.quality.parity --model demo:gemma3-270m
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch
import transformers
from benchmark.environment import Environment, describe_file, write_result
from benchmark.quality.engine import Engine
from torch import Tensor

from treadle.srt.checkpoint import resolve_path
from treadle.srt.tokenizer.encode import Tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = ("README.md", "srt/cache/replay.py", "srt/ARCHITECTURE.md", "srt/worker/mapping.py")
CONTEXT, SCORED = 48, 40  # tokens before the scored rows, and scored rows, per text: 160 in all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:gemma3-270m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    logging.basicConfig(level="WARNING")
    path = resolve_path(args.model)
    tokenizer = Tokenizer.load(path)
    texts = [
        tokenizer.encode((ROOT / name).read_text(), add_special=True)[: CONTEXT + SCORED]
        for name in TEXTS
    ]
    reference = _reference(path, texts)
    rows = [_score(path, texts, reference, q, args.threads) for q in ("none", "q8_0")]
    for row in rows:
        print(
            f"{args.model} weights={row['weights']}: mean KL {row['mean_kl']:.2e}, "
            f"worst {row['worst_kl']:.2e}, top-1 {row['top1']:.1%} of {row['rows']}"
        )
    name = args.out or f"parity-{args.model.removeprefix('demo:')}"
    environment = Environment.read(("torch", "transformers", "accelerate"))
    write_result(name, {"environment": environment, "model": describe_file(path), "results": rows})


def _reference(path: Path, texts: list[list[int]]) -> Tensor:
    """Log-probabilities [rows, V] of transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        logits = [model(torch.tensor([ids])).logits[0, CONTEXT:].float() for ids in texts]
    return torch.log_softmax(torch.cat(logits), dim=1)


def _score(
    path: Path, texts: list[list[int]], reference: Tensor, quantization: str, threads: int
) -> dict[str, object]:
    engine = Engine.load(path, quantization, threads)
    ours = torch.cat([engine.compare(ids, CONTEXT, ())[0] for ids in texts])
    logprobs = torch.log_softmax(ours.float(), dim=1)
    kl = (reference.exp() * (reference - logprobs)).sum(dim=1)
    return {
        "weights": quantization,
        "rows": len(kl),
        "mean_kl": float(kl.mean()),
        "worst_kl": float(kl.max()),
        "top1": float((reference.argmax(1) == logprobs.argmax(1)).float().mean()),
    }


if __name__ == "__main__":
    main()
