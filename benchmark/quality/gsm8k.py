"""Grade-school mathematics (GSM8K) asked of any OpenAI-compatible server.

    python -m benchmark.quality.gsm8k --file test.jsonl --url http://127.0.0.1:30000 [--out NAME]

`--file` is the data set's test.jsonl (lines with `question` and `answer`), which has to be on this
machine. The convention is that of SGLang's few-shot script: the first five lines are shown as
examples, 200 of the next are asked greedily for up to 512 tokens, and the last number of what was
said is compared with the one after `####`. Small models are near zero here: for them the share says
nothing, whether two runs give the same answers does (`answers` in the result).
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import orjson
from benchmark.environment import Environment, describe_file, write_result
from benchmark.quality.accuracy import Accuracy, Endpoint

SHOTS = 5
STOPS = ["Question", "Assistant:", "<|separator|>"]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    solution: str

    @property
    def number(self) -> float | None:
        return last_number(self.solution.rpartition("####")[2])


@dataclass(frozen=True, slots=True)
class Answer:
    """`number` None: nothing that looks like one was said."""

    number: float | None
    is_right: bool
    completion_tokens: int
    cached_tokens: int


def read_questions(path: Path) -> list[Question]:
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [Question(line["question"], line["answer"]) for line in lines]


def last_number(text: str) -> float | None:
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def examples(questions: Sequence[Question]) -> str:
    return "".join(f"Question: {q.text}\nAnswer: {q.solution}\n\n" for q in questions)


def ask(endpoint: Endpoint, shown: str, question: Question, max_tokens: int) -> Answer:
    prompt = f"{shown}Question: {question.text}\nAnswer:"
    found = endpoint.complete(prompt, max_tokens=max_tokens, stop=STOPS)
    number = last_number(found["choices"][0]["text"])
    usage = found["usage"]
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    is_right = number is not None and number == question.number
    return Answer(number, is_right, usage["completion_tokens"], cached)


def main() -> None:
    args = _arguments()
    environment = Environment.read(())
    questions = read_questions(args.file)
    shown, asked = examples(questions[:SHOTS]), questions[SHOTS : SHOTS + args.questions]
    endpoint = Endpoint(args.url, args.model, args.api_key)
    began = time.perf_counter()
    with ThreadPoolExecutor(args.concurrency) as threads:
        answers = list(
            threads.map(lambda question: ask(endpoint, shown, question, args.max_tokens), asked)
        )
    elapsed = time.perf_counter() - began
    accuracy = Accuracy.of([answer.is_right for answer in answers])
    tokens = sum(answer.completion_tokens for answer in answers)
    invalid = sum(answer.number is None for answer in answers) / len(answers)
    print(f"Accuracy: {accuracy.share:.3f} (standard error {accuracy.standard_error:.3f})")
    print(f"Invalid: {invalid:.3f}\nLatency: {elapsed:.1f} s")
    print(f"Output throughput: {tokens / elapsed:.1f} token/s")
    if args.out:
        content = {
            "environment": environment,
            "file": describe_file(args.file),
            "accuracy": accuracy,
            "invalid": invalid,
            "elapsed_s": round(elapsed, 1),
            "completion_tokens": tokens,
            "answers": answers,
        }
        print(write_result(args.out, content).name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--file", type=Path, required=True, help="the data set's test.jsonl")
    add("--url", default="http://127.0.0.1:30000", help="of the server, without /v1")
    add("--model", default="default")
    add("--api-key", default="")
    add("--questions", type=int, default=200)
    add("--max-tokens", type=int, default=512)
    add("--concurrency", type=int, default=8)
    add("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
