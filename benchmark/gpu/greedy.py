"""Greedy answers of a GPU against those of the CPU: twenty prompts, each cold and then warm.

    python -m benchmark.gpu.greedy --model demo:gemma3-270m --out greedy_gemma3-270m

writes the CPU's answers, of float32 weights, with the gap between the two best logits at each
token. The part `greedy` of the suite asks the same of a server on the GPU; `BENCH_GGUF` names its
model file where the demo's package is not installed. Answers may differ from a token on at which
the CPU's gap is below a tolerance: from there on they are two texts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from benchmark.environment import RESULTS, Environment, describe_file, write_result
from benchmark.gpu.serve import command_of
from benchmark.serving.client import Json, TreadleWire, post
from benchmark.serving.servers import Server, Spec

from treadle.srt.demo import PREFIX, demo_path

MODEL = "demo:gemma3-270m"
REFERENCE = RESULTS / "greedy_gemma3-270m.json"
TOKENS = 32
KINDS = ("cold", "warm")
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}  # of logits, by the dtype of weights
COMMON = ("--context-length", "2048", "--max-running-requests", "4", "--quantization", "none")
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "To be, or not to be,",
    "In 1969, the first humans",
    "Dear Sir or Madam,\n\nI am writing to",
    "The quick brown fox",
    "import numpy as np\n\nx = np.",
    "A recipe for pancakes:\n\n1.",
    "The difference between a list and a tuple in Python is",
    "Q: What is the largest planet?\nA:",
    "Photosynthesis is the process by which",
    "SELECT name FROM users WHERE",
    "My favourite book is",
    "The Roman Empire fell because",
    '{"name": "Ada", "age": ',
    "Translate to German: Good morning! ->",
    "The next number of the sequence 2, 4, 8, 16 is",
)
LONG = "The following notes were taken during a walk along the river. "  # more than one window


@dataclass(frozen=True, slots=True)
class Answer:
    """`gaps`: of the two best logits, at each token."""

    ids: list[int]
    gaps: list[float]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which two answers differ."""

    prompt: int
    kind: str
    token: int
    gap: float


def prompts() -> list[str]:
    """Every fifth is long, so that window layers replay on a hit."""
    return [LONG * 50 + text if i % 5 == 4 else text for i, text in enumerate(PROMPTS)]


def ask_all(server: Server) -> dict[str, list[Answer]]:
    """Each prompt alone, cold, and when all are done again."""
    return {kind: [_ask(server, text) for text in prompts()] for kind in KINDS}


def differences(
    got: Mapping[str, Sequence[Answer]], want: Mapping[str, Sequence[Answer]]
) -> list[Difference]:
    found = []
    for kind in KINDS:
        for prompt, (ours, theirs) in enumerate(zip(got[kind], want[kind], strict=True)):
            pairs = enumerate(zip(ours.ids, theirs.ids, strict=True))
            token = next((i for i, (a, b) in pairs if a != b), None)
            if token is not None:
                found.append(Difference(prompt, kind, token, theirs.gaps[token]))
    return found


def measure() -> dict[str, object]:
    """Of the GPU, in each dtype. `failed` where an answer differs at a clear choice."""
    reference = orjson.loads(REFERENCE.read_bytes())
    want = {kind: [Answer(**x) for x in reference["answers"][kind]] for kind in KINDS}
    model = Path(os.environ.get("BENCH_GGUF") or demo_path(MODEL.removeprefix(PREFIX)))
    made: dict[str, object] = {"reference": REFERENCE.name, "model": describe_file(model)}
    is_wrong = reference["model"] != made["model"]
    for dtype, tolerance in TOLERANCE.items():
        with Server(_spec(str(model), "--device", "cuda", "--dtype", dtype)) as server:
            server.wait_until_ready()
            found = differences(ask_all(server), want)
        wrong = [x for x in found if x.gap > tolerance]
        is_wrong = is_wrong or bool(wrong)
        made[dtype] = {
            "answers": len(KINDS) * len(PROMPTS),
            "equal": len(KINDS) * len(PROMPTS) - len(found),
            "tolerance": tolerance,
            "largest_gap": max((x.gap for x in found), default=0.0),
            "differences": [asdict(x) for x in found],
        }
    return {**made, "failed": is_wrong}


def _ask(server: Server, text: str) -> Answer:
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    wanted = {"return_logprob": True, "top_logprobs_num": 2}
    reply = post(server.port, "/generate", {"text": text, "sampling_params": sampling, **wanted})
    meta = reply["meta_info"]
    assert isinstance(meta, dict)
    ids = [entry[1] for entry in meta["output_token_logprobs"]]
    tops = meta["output_top_logprobs"]
    return Answer(ids, [round(best[0] - second[0], 5) for best, second in tops])


def _spec(model: str, *flags: str) -> Spec:
    argv, environ = command_of(model, *COMMON, *flags)
    return Spec("treadle", argv, environ, TreadleWire(), "/ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--out", default=REFERENCE.stem)
    options = parser.parse_args()
    environment = asdict(Environment.read(("torch", "numpy")))
    name: str = options.model
    path = demo_path(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else Path(name)
    with Server(_spec(name, "--device", "cpu", "--dtype", "float32")) as server:
        server.wait_until_ready()
        answers = {kind: [asdict(x) for x in found] for kind, found in ask_all(server).items()}
    content: Json = {"model": describe_file(path), "tokens": TOKENS, "answers": answers}
    write_result(options.out, {"environment": environment, **content})


if __name__ == "__main__":
    main()
