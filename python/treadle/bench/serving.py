"""`python -m treadle.bench serving`: loads a server with a dataset and reports its latencies.

One line of JSON is appended to a file for each run, a table goes to standard output. The exit
status is 1 where a request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import orjson

from . import figures
from .asks import Ask, Json, Message, Options, Prompt
from .control import Control, Unready
from .conversations import Conversation, total_turns
from .datasets import read_load
from .load import Pace, play, starts
from .profile import profile_wish, profiled
from .progress import Progress
from .reach import encoder, open_http, pairs
from .sender import Sender, Target
from .serving_flags import parser
from .serving_table import table
from .vocabulary import Encode, Vocabulary, read_vocabulary
from .wires import CHAT_OF, WIRES

WARMUP_OUTPUT = 32


def main(argv: Sequence[str]) -> int:
    """Exit status; 2 with one line on standard error for what the user can mend."""
    args = parser().parse_args(argv)
    try:
        result = asyncio.run(run(args))
    except (Unready, ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    path = args.output_file or Path(default_file(args, result["backend"]))
    with path.open("ab") as file:
        file.write(orjson.dumps(result) + b"\n")
    sys.stdout.write(f"{table(result)}{path}\n")
    return 1 if result["failed"] else 0


async def run(args: argparse.Namespace) -> Json:
    """The result line. Raises Unready, ValueError, OSError."""
    url = (args.base_url or f"http://{args.host}:{args.port}").rstrip("/")
    async with open_http(pairs(args.header)) as http:
        control = Control(http, url)
        target = await _target(args, control)
        encode = encoder(args.tokenizer, control)
        words = await read_vocabulary(encode)
        load = await _load(args, target, words, encode)
        done = await _measured(args, http, target, load, words)
        texts = [answer.said.text for answer in done.whole]
        ids = [await encode(text, False) for text in texts] if words.ids else []
        done.retokenized = sum(len(found or ()) for found in ids)
        done.server_info = await control.server_info()
    return line(args, target.backend, done)


def line(args: argparse.Namespace, backend: str, done: figures.Run) -> Json:
    """The keys of SGLang's client, in its order; `failed` is ours."""
    result = {
        "tag": args.tag,
        "backend": backend,
        "dataset_name": args.dataset_name,
        "request_rate": "trace" if args.use_trace_timestamps else _number(args.request_rate),
        "max_concurrency": args.max_concurrency,
        "sharegpt_output_len": args.sharegpt_output_len,
        "random_input_len": args.random_input_len,
        "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio,
        "server_info": done.server_info,
    }
    result |= figures.rates(done) | figures.latencies(done) | figures.load_figures(done)
    if args.goodput:
        result |= figures.goodput(done, dict(args.goodput))
    if args.cache_report:
        result |= figures.cache_report(done)
    return result | (figures.details(done) if args.output_details else {})


def default_file(args: argparse.Namespace, backend: str) -> str:
    what = args.dataset_name
    if what.startswith("random"):
        what = f"{args.random_input_len}_{args.random_output_len}"
    return f"{backend}_{time.strftime('%m%d')}_{args.num_prompts}_{what}.jsonl"


async def _target(args: argparse.Namespace, control: Control) -> Target:
    found = await control.find("", args.backend or "", args.model, args.ready_check_timeout_sec)
    backend = found.backend
    if args.apply_chat_template and not WIRES[backend].is_chat:
        if backend not in CHAT_OF:
            raise ValueError(f"--apply-chat-template: the backend {backend} has no chat")
        backend = CHAT_OF[backend]
    return Target(found.name, found.url, backend, args.served_model_name or found.model)


async def _load(
    args: argparse.Namespace, target: Target, words: Vocabulary, encode: Encode
) -> list[Conversation]:
    async def count(text: str) -> int:
        return len(await encode(text, False) or text.split())

    return await read_load(args, words, count, is_chat=WIRES[target.backend].is_chat)


async def _measured(
    args: argparse.Namespace,
    http: aiohttp.ClientSession,
    target: Target,
    load: list[Conversation],
    words: Vocabulary,
) -> figures.Run:
    pace = Pace(
        args.request_rate, args.burstiness, args.use_trace_timestamps, args.max_concurrency or 0
    )
    at_s, wish = starts(load, pace, random.Random(args.seed)), profile_wish(args)
    wire, options = WIRES[target.backend], _options(args, target.model)
    await _warm_up(Sender(http, target, wire, options), load[0], words, args)
    control = Control(http, target.url)
    if args.flush_cache:
        await control.flush_cache(args.flush_cache_timeout)
    is_shown, total = not args.disable_tqdm, total_turns(load)
    with Progress(total, is_shown=is_shown, prints_answers=args.print_requests) as bar:
        async with profiled(control, wish):
            sender = Sender(http, target, wire, options)
            answers = await play(load, at_s, sender, pace.max_concurrency, bar)
            return figures.Run(answers, sender.now_s())


async def _warm_up(
    sender: Sender, like: Conversation, words: Vocabulary, args: argparse.Namespace
) -> None:
    """Prompts as long as the first, but of their own, so that nothing measured is cached. Raises
    ValueError with what the server says."""
    rng = random.Random(f"warm-up {args.seed}")
    turn = like.turns[0]
    for _ in range(args.warmup_requests):
        text = words.text(rng, turn.input_len)
        is_chat = isinstance(turn.addition, tuple)
        prompt: Prompt = (Message("user", text),) if is_chat else text
        answer = await sender.send(Ask(prompt, min(turn.output_len, WARMUP_OUTPUT)), turn.input_len)
        if answer.error:
            raise ValueError(f"the warm-up request failed: {answer.error}")


def _options(args: argparse.Namespace, model: str) -> Options:
    return Options(
        model=model,
        temperature=args.temperature,
        top_p=args.top_p,
        ignore_eos=not args.disable_ignore_eos,
        stream=not args.disable_stream,
        top_logprobs=args.top_logprobs_num if args.return_logprob else -1,
        logprob_start=args.logprob_start_len,
        lora=args.lora_name,
        extra=args.extra_request_body,
    )


def _number(rate: float) -> float | str:
    """JSON has no infinity."""
    return "inf" if rate == float("inf") else rate
