"""`python -m treadle.bench one_batch`: times requests of one shape that are sent together.

The batch goes over HTTP, a request each, to a server that runs or is started for it. So prefill is
the time to the last of the first tokens, and a decode step the gap that a client sees. A line of
the result has the keys of SGLang's two tools, the one without a server and the one with.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from .asks import Answer, Ask, Json, Options, engine_state
from .control import Control
from .environment import append_line, prepare
from .flag_values import positive, utf8
from .local import EPILOG, add_server, served
from .profile import add_profile, profile_wish, profiled
from .reach import encoder, open_http
from .sender import Sender
from .vocabulary import Vocabulary, read_vocabulary

WARMUP_OUTPUT = 8
COLUMNS = (
    ("batch_size", "batch"), ("input_len", "in"), ("output_len", "out"),
    ("prefill_latency", "prefill, s"), ("prefill_throughput", "tokens/s"),
    ("median_decode_latency", "step, s"), ("median_decode_throughput", "tokens/s"),
    ("total_latency", "all, s"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    batch_size: int
    input_len: int
    output_len: int


def main(argv: Sequence[str]) -> int:
    """Exit status. Raises Unready, ValueError, OSError for what the user can mend."""
    args, server_flags = parser().parse_known_args(argv)
    sizes = product(args.batch_size, args.input_len, args.output_len)
    shapes = [Shape(*size) for size in sizes]
    prepare(args.result_filename)
    with served(args, server_flags) as url:
        sys.stdout.write("".join(f"{label:>12}" for _, label in COLUMNS) + "\n")
        asyncio.run(measure(args, url, shapes, lambda result: _tell(args, result)))
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench one_batch",
        description="Time batches of every combination of the given sizes.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    add_server(found)
    add = found.add_argument_group("batches, lengths in tokens").add_argument
    add("--batch-size", nargs="+", type=positive, default=[1])
    add("--input-len", nargs="+", type=positive, default=[1024])
    add("--output-len", nargs="+", type=positive, default=[16])
    add("--run-name", type=utf8, default="default", help="kept in the result")
    add("--seed", type=int, default=42)
    add("--skip-warmup", action="store_true")
    add("--result-filename", type=Path, default=Path("result.jsonl"), help="lines are appended")
    add_profile(found)
    return found


async def measure(
    args: argparse.Namespace, url: str, shapes: Sequence[Shape], tell: Callable[[Json], None]
) -> None:
    """Calls `tell` with each shape's result. Raises Unready, and ValueError for a request that
    fails."""
    wish, rng = profile_wish(args), random.Random(args.seed)
    async with open_http({}) as http:
        control = Control(http, url)
        target = await control.find("", "", "", args.ready_check_timeout_sec)
        words = await read_vocabulary(encoder(None, control))
        sender = Sender(http, target, Options(target.model))
        if not args.skip_warmup:
            first = shapes[0]
            output_len = min(first.output_len, WARMUP_OUTPUT)
            await _send(sender, words, Shape(first.batch_size, first.input_len, output_len), rng)
        for shape in shapes:
            async with profiled(control, wish):
                answers = await _send(sender, words, shape, rng)
            info = await control.server_info()
            tell({"run_name": args.run_name} | line(shape, answers, info))


def line(shape: Shape, answers: Sequence[Answer], server_info: Json | None) -> Json:
    """Latencies in seconds, throughputs in tokens per second; None for what takes no time, as
    decode does where all tokens come at once, and for what the server does not tell."""
    batch, begin_s = shape.batch_size, min(answer.sent_s for answer in answers)
    prefill_s = max(answer.sent_s + answer.ttft_s for answer in answers) - begin_s
    total_s = max(answer.sent_s + answer.e2e_s for answer in answers) - begin_s
    gaps = [gap for answer in answers for gap in answer.itls_s]
    step_s = statistics.median(gaps) if gaps else None
    prompt = sum(answer.prompt_tokens for answer in answers)
    output = sum(answer.said.output_tokens for answer in answers)
    state = engine_state(server_info)
    return {
        "batch_size": batch,
        "input_len": shape.input_len,
        "output_len": shape.output_len,
        "prefill_latency": prefill_s,
        "prefill_throughput": _rate(prompt, prefill_s),
        "median_decode_latency": step_s,
        "median_decode_throughput": _rate(batch, step_s or 0.0),
        "total_latency": total_s,
        "overall_throughput": _rate(prompt + output, total_s),
        "latency": total_s,
        "input_throughput": _rate(prompt, prefill_s),
        "output_throughput": _rate(output, total_s - prefill_s),
        "last_ttft": prefill_s,
        "last_gen_throughput": state.get("last_gen_throughput"),
        "acc_length": state.get("avg_spec_accept_length"),
        "cache_hit_rate": sum(answer.said.cached or 0 for answer in answers) / prompt,
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None


async def _send(
    sender: Sender, words: Vocabulary, shape: Shape, rng: random.Random
) -> list[Answer]:
    """Prompts are random, so that none finds another's prefix. Raises ValueError."""
    make = words.token_ids if words.ids else words.text
    asks = [Ask(make(rng, shape.input_len), shape.output_len) for _ in range(shape.batch_size)]
    answers = await asyncio.gather(*(sender.send(ask, shape.input_len) for ask in asks))
    for answer in answers:
        if answer.error:
            raise ValueError(f"{shape}: {answer.error}")
    return answers


def _tell(args: argparse.Namespace, result: Json) -> None:
    append_line(args.result_filename, result)
    cells = ("-" if result[key] is None else f"{result[key]:.5g}" for key, _ in COLUMNS)
    sys.stdout.write("".join(f"{cell:>12}" for cell in cells) + "\n")
    sys.stdout.flush()
