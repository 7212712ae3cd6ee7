"""Whether a hit gives what a cold run gives, to the bit: random prompts, hits and chunk sizes.

    python -m benchmark.quality.exactness --model FILE.gguf [--modes exact,canonical] [--pairs 40]
        [--new-tokens 64] [--quantization q8_0] [--window W] [--out NAME]

Run from the root of the repository; `--model` also takes demo:gemma3-270m. For every pair of a
prompt and a hit length H one request runs cold, what it left in the cache is cut to H tokens, and
the same request runs again in chunks of another size:

    cold   |============================================|x x x x x     chunks of c rows
    warm   |------ cached, H ------|====================|x x x x x     chunks of c' rows
                        |~ replay ~|
                                   ^ logprobs of the prompt from here, and of the output

Output ids, their logprobs and the prompt's logprobs must be equal as numbers; so must the page
bytes that later rows were computed from, since they read them. `--window` makes all of it cheap:
the same weights with a shorter window, which is another model and the same code.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.environment import Environment, describe_file, write_result
from benchmark.quality.in_process import Answer, InProcess
from benchmark.quality.texts import load_texts

from treadle.srt.checkpoint import resolve_path
from treadle.srt.tokenizer.encode import Tokenizer

PACKAGES = ("torch", "numpy")
MODES = ("exact", "canonical")
TAIL_TOKENS = 900  # most new tokens of a prompt after its hit
HITS_BEYOND = 2000  # exact hits are up to so many tokens longer than the replay
SEGMENTS = 2  # canonical hits are at one of so many grid points
CHUNKS = (96, 2048)  # rows per step, drawn


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt and hit. `differs`: what was not equal, "" when all was."""

    mode: str
    prompt_tokens: int
    hit: int
    replayed: int
    cold_chunk: int
    warm_chunk: int
    prompt_logprobs: int
    differs: str


def main() -> None:
    args = _arguments()
    environment = Environment.read(PACKAGES)
    path = resolve_path(args.model)
    stream = _stream(path)
    began = time.monotonic()
    pairs: list[Pair] = []
    for mode in args.modes:
        engine = InProcess(
            path,
            quantization=args.quantization,
            mode=mode,
            threads=args.threads,
            override=_override(args.window),
        )
        rng = random.Random(args.seed)
        for _ in range(args.pairs):
            pairs.append(_measure(engine, mode, stream, rng, args.new_tokens))
            print(pairs[-1], file=sys.stderr)
    summary = {mode: _summary([pair for pair in pairs if pair.mode == mode]) for mode in args.modes}
    print(summary)
    result = {
        "environment": environment,
        "model": describe_file(path),
        "quantization": args.quantization,
        "window": args.window or "the model's",
        "new_tokens": args.new_tokens,
        "threads": args.threads,
        "notes": args.note,
        "summary": summary,
        "pairs": pairs,
        "seconds": round(time.monotonic() - began),
    }
    if args.out:
        print(f"written: {write_result(args.out, result).name}", file=sys.stderr)
    if any(pair.differs for pair in pairs):
        sys.exit(1)


def _measure(
    engine: InProcess, mode: str, stream: Sequence[int], rng: random.Random, new_tokens: int
) -> Pair:
    hit = _hit(engine, mode, rng)
    length = hit + rng.randint(1, TAIL_TOKENS)
    if mode == "canonical" and rng.random() < 0.25:
        length += engine.grid  # a grid point in the new part too
    start = rng.randrange(len(stream) - length)
    prompt = stream[start : start + length]
    chunks = rng.randint(*CHUNKS), rng.randint(*CHUNKS)
    engine.forget()
    cold = engine.answer(prompt, new_tokens, hit + 1, chunks[0])
    engine.forget(keep_tokens=hit)
    warm = engine.answer(prompt, new_tokens, hit + 1, chunks[1])
    assert warm.usage is not None
    return Pair(
        mode=mode,
        prompt_tokens=length,
        hit=hit,
        replayed=warm.usage.replayed_tokens,
        cold_chunk=chunks[0],
        warm_chunk=chunks[1],
        prompt_logprobs=len(warm.prompt_logprobs),
        differs=_difference(cold, warm, hit),
    )


def _hit(engine: InProcess, mode: str, rng: random.Random) -> int:
    if mode == "canonical":
        return engine.grid * rng.randint(1, SEGMENTS)
    size = engine.page_size
    least = engine.longest_replay // size + 2
    return size * rng.randint(least, least + HITS_BEYOND // size)


def _difference(cold: Answer, warm: Answer, hit: int) -> str:
    assert cold.usage is not None and warm.usage is not None
    cached = cold.usage.cached_tokens, warm.usage.cached_tokens
    if cached != (0, hit):
        return f"cached tokens are {cached}"
    for name in ("token_ids", "logprobs", "prompt_logprobs"):
        a, b = getattr(cold, name), getattr(warm, name)
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), -1)
            return f"{name} from index {at}"
    return ""


def _summary(pairs: Sequence[Pair]) -> dict[str, int]:
    equal = [pair for pair in pairs if not pair.differs]
    return {
        "pairs": len(pairs),
        "equal": len(equal),
        "prompt_logprobs_compared": sum(pair.prompt_logprobs for pair in equal),
    }


def _stream(path: Path) -> list[int]:
    """All texts one after the other: windows of it are the prompts."""
    tokenizer = Tokenizer.load(path)
    ids: list[int] = []
    for text in load_texts():
        ids += tokenizer.encode(text.content, add_special=True)
    return ids


def _override(window: int) -> str:
    return f'{{"gemma3.attention.sliding_window": {window}}}' if window else "{}"


def _modes(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in MODES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: there are {', '.join(MODES)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="demo:gemma3-270m", help="a Gemma 3 model")
    add("--quantization", choices=("none", "q8_0"), default="q8_0", help="of weights in memory")
    add("--modes", type=_modes, default=list(MODES))
    add("--pairs", type=int, default=40, help="of each mode")
    add("--new-tokens", type=int, default=64)
    add("--window", type=int, default=0, help="a shorter window for the same weights")
    add("--threads", type=int, default=2)
    add("--seed", type=int, default=1)
    add("--note", action="append", default=[], help="kept in the result; may be repeated")
    add("--out", default="", help="name of the file in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
