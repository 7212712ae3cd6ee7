"""Agent sessions against a model of random weights: with the prefix cache and without.

Sessions of a published trace, lengths scaled, each a closed loop without think time: a turn is sent
once the one before it was answered. A prompt is the turn's own text after what it shares with the
turn it goes on from, and of that turn the tokens that were really generated.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from benchmark.environment import ROOT, describe_file
from benchmark.gpu.serve import CONCURRENT, TOKENIZER_IDS, spec
from benchmark.serving.servers import Server

from treadle.bench.asks import Answer, Ask, Options
from treadle.bench.reach import open_http
from treadle.bench.sender import Sender, Target
from treadle.bench.traces import Session, Speller, read_agents

TRACE = ROOT.parent / "shared" / "traces" / "agent_sessions.jsonl"
SCALE, TURNS = 1 / 16, 6
LONGEST = 14000  # tokens of a session's last prompt: it fits the context with its output
WARM_UP_TOKENS = 8


@dataclass(slots=True, eq=False)
class Player:
    """One session. `texts[i]`: prompt and answer of turn i, as far as it was played."""

    session: Session
    number: int
    speller: Speller
    texts: list[array[int]] = field(default_factory=list)

    def prompt(self, index: int) -> array[int]:
        """Of the next turn."""
        turn = self.session.turns[index]
        spelled = in_vocabulary(self.speller.ids(turn, self.number)[: turn.prompt])
        if turn.after < 0:
            return spelled
        shared = self.texts[turn.after][: turn.shared]
        return shared + spelled[len(shared) :]

    async def play(self, sender: Sender) -> list[Answer]:
        """Raises RuntimeError for an answer that is none."""
        answers = []
        for index, turn in enumerate(self.session.turns):
            prompt = self.prompt(index)
            ask = Ask(prompt, turn.output, session=f"{self.session.key}-{self.number}")
            answer = await sender.send(ask, len(prompt))
            if answer.error:
                raise RuntimeError(answer.error)
            self.texts.append(prompt + array("i", answer.said.output_ids or ()))
            answers.append(answer)
        return answers


def measure(name: str) -> dict[str, object]:
    """`BENCH_AGENTS` names the trace's file; else it is looked for beside the checkout."""
    trace = Path(os.environ.get("BENCH_AGENTS", TRACE))
    sessions = chosen(read_agents(trace, SCALE, TURNS))
    found: dict[str, dict[str, float]] = {}
    for kind, flags in (("replay", ()), ("no_prefix_cache", ("--disable-radix-cache",))):
        with Server(spec(name, *flags)) as server:
            server.wait_until_ready()
            server.generate([1] * WARM_UP_TOKENS, WARM_UP_TOKENS)
            found[kind] = figures(*asyncio.run(play(sessions, server.port)))
    off, on = found["no_prefix_cache"], found["replay"]
    return {
        "trace": describe_file(trace),
        "sessions": len(sessions),
        "turns": sum(len(x.turns) for x in sessions),
        "length_scale": SCALE,
        **found,
        "throughput_ratio": on["output_tokens_per_s"] / off["output_tokens_per_s"],
        "ttft_p50_ratio": off["ttft_p50_ms"] / on["ttft_p50_ms"],
    }


def chosen(sessions: Sequence[Session]) -> list[Session]:
    """The first that fit; from the first again where there are too few."""
    fitting = [x for x in sessions if max(turn.prompt for turn in x.turns) <= LONGEST]
    return [fitting[i % len(fitting)] for i in range(CONCURRENT)]


async def play(sessions: Sequence[Session], port: int) -> tuple[list[Answer], float]:
    """All at once: their answers, and seconds until the last."""
    speller = Speller()
    players = [Player(session, number, speller) for number, session in enumerate(sessions)]
    async with open_http({}) as http:
        target = Target("treadle", f"http://127.0.0.1:{port}", "sglang", "")
        sender = Sender(http, target, Options(""))
        played = await asyncio.gather(*(player.play(sender) for player in players))
        seconds = sender.now_s()
    return [answer for answers in played for answer in answers], seconds


def figures(answers: Sequence[Answer], seconds: float) -> dict[str, float]:
    """Interactivity: tokens per second that one user sees after the first; P90 is that of the
    request which nine of ten are faster than."""
    output = sum(x.said.output_tokens for x in answers)
    prompt = sum(x.said.prompt_tokens for x in answers)
    speeds = [1 / x.tpot_s for x in answers if x.tpot_s]
    ttfts = [x.ttft_s * 1e3 for x in answers]
    return {
        "seconds": seconds,
        "output_tokens_per_s": output / seconds,
        "prompt_tokens_per_s": prompt / seconds,
        "hit_rate": sum(x.said.cached or 0 for x in answers) / prompt,
        "replayed_share": sum(x.said.replayed for x in answers) / prompt,
        "interactivity_p50": float(np.percentile(speeds, 50)),
        "interactivity_p90": float(np.percentile(speeds, 10)),
        "ttft_p50_ms": float(np.percentile(ttfts, 50)),
        "ttft_p90_ms": float(np.percentile(ttfts, 90)),
    }


def in_vocabulary(spelled: array[int]) -> array[int]:
    """Ids of the tokenizer, equal where `spelled` is equal."""
    ids = np.frombuffer(spelled, dtype=np.int32).astype(np.int64) * 2654435761 >> 7
    return array("i", (ids % TOKENIZER_IDS).astype(np.int32).tobytes())
