"""One run of `bench serving`: a server found, its load made, played and timed."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass

import aiohttp

from . import figures
from .asks import Options
from .control import Control
from .conversations import Conversation, total_turns
from .datasets import read_load
from .load import Pace, play, starts
from .profile import profile_wish, profiled
from .progress import Progress
from .reach import encoder, open_http, pairs
from .sender import Sender, Target
from .vocabulary import Encode, Vocabulary, read_vocabulary
from .wires import CHAT_OF, WIRES

WARMUP_OUTPUT = 32


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run has to tell of."""

    target: Target
    done: figures.Run


async def run(args: argparse.Namespace) -> Measured:
    """`args`: of `serving_flags`. Raises Unready, ValueError, OSError."""
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
    return Measured(target, done)


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
    options = _options(args, target.model)
    await _warm_up(Sender(http, target, options), load[0], words, args)
    control = Control(http, target.url)
    if args.flush_cache:
        await control.command(f"/flush_cache?timeout={args.flush_cache_timeout:g}")
    is_shown, total = not args.disable_tqdm, total_turns(load)
    with Progress(total, is_shown=is_shown, prints_answers=args.print_requests) as bar:
        async with profiled(control, wish):
            sender = Sender(http, target, options)
            answers = await play(load, at_s, sender, pace.max_concurrency, bar)
            return figures.Run(answers, sender.now_s())


async def _warm_up(
    sender: Sender, like: Conversation, words: Vocabulary, args: argparse.Namespace
) -> None:
    """Texts as long as the first, but of their own, so that nothing measured is cached. Raises
    ValueError."""
    rng = random.Random(f"warm-up {args.seed}")
    turn = like.turns[0]
    for _ in range(args.warmup_requests):
        text = words.text(rng, turn.input_len)
        await sender.warm_up(text, turn.input_len, min(turn.output_len, WARMUP_OUTPUT))


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
        wants_tiers=args.cache_report,
        extra=args.extra_request_body,
    )
