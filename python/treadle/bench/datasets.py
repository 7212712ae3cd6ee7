"""The load that flags of `bench serving` describe: made up, or read from files."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from .conversations import (
    Conversation,
    RandomLoad,
    SharedLoad,
    as_messages,
    random_load,
    shared_load,
)
from .dataset_flags import FROM_FILES
from .recorded import Count, Slice, TraceScale, agentic, lines, mooncake
from .vocabulary import Vocabulary

MOONCAKE_FILE = "{}_trace.jsonl"  # as its release names them


async def read_load(
    args: argparse.Namespace, words: Vocabulary, count: Count, *, is_chat: bool
) -> list[Conversation]:
    """Raises ValueError, OSError with what the user can mend."""
    rng = random.Random(args.seed)
    load = await _read(args, words, count, rng)
    if not load:
        raise ValueError(f"{args.dataset_name}: nothing to send")
    return as_messages(load) if is_chat else load


async def _read(
    args: argparse.Namespace, words: Vocabulary, count: Count, rng: random.Random
) -> list[Conversation]:
    name = args.dataset_name
    if name == "generated-shared-prefix":
        return shared_load(_shared(args), words, rng)
    if name not in FROM_FILES:
        as_ids = args.tokenize_prompt or name == "random-ids"
        lengths = (args.random_input_len, args.random_output_len, args.random_range_ratio)
        return random_load(RandomLoad(args.num_prompts, *lengths, as_ids), words, rng)
    path, part = _path(args), Slice(args.dataset_offset, args.num_prompts)
    if name == "mooncake":
        scale = TraceScale(
            slowdown=args.mooncake_slowdown_factor,
            length=args.length_scale,
            as_ids=args.tokenize_prompt,
            rounds=args.mooncake_num_rounds,
        )
        return mooncake(path, part, scale, words)
    output_len = args.sharegpt_output_len or 0
    if name == "agentic-trace":
        return agentic(path, part, args.agentic_max_turns, output_len)
    found = await lines(path, part, output_len, count)
    return _within(found, args.sharegpt_context_len) if args.sharegpt_context_len else found


def _shared(args: argparse.Namespace) -> SharedLoad:
    return SharedLoad(
        groups=args.gsp_num_groups,
        per_group=args.gsp_prompts_per_group,
        system_len=args.gsp_system_prompt_len,
        question_len=args.gsp_question_len,
        output_len=args.gsp_output_len,
        num_turns=args.gsp_num_turns,
        sends_routing_key=args.gsp_send_routing_key,
        as_ids=args.tokenize_prompt,
        zipf_alpha=_zipf_alpha(args),
    )


def _zipf_alpha(args: argparse.Namespace) -> float:
    """0 for groups of one size."""
    is_zipf = args.gsp_group_distribution == "zipf"
    if is_zipf != (args.gsp_zipf_alpha is not None):
        raise ValueError("--gsp-group-distribution zipf and --gsp-zipf-alpha go together")
    return args.gsp_zipf_alpha if is_zipf else 0.0


def _path(args: argparse.Namespace) -> Path:
    if args.dataset_path is not None:
        return Path(args.dataset_path)
    if args.dataset_name == "mooncake":
        return Path(MOONCAKE_FILE.format(args.mooncake_workload))
    raise ValueError(f"--dataset-name {args.dataset_name} needs --dataset-path")


def _within(load: list[Conversation], context_len: int) -> list[Conversation]:
    def total(one: Conversation) -> int:
        return sum(turn.input_len + turn.output_len for turn in one.turns)

    return [one for one in load if total(one) <= context_len]
