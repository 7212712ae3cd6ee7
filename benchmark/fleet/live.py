"""Plays a trace's sessions against real servers, turn by turn, and adds up what they say.

The same clients as in a simulation, on a real clock. Ids are drawn from the model's vocabulary; the
prompt of a later turn holds what the server has generated, as an agent's does.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import orjson

from treadle.bench.traces import Speller, Turn, drawn

from .clients import Clients
from .costs import Costs

FIRST_ID = 64  # below are ids that a tokenizer may give a meaning
TIMEOUT_S = 600.0


@dataclass(slots=True, eq=False)
class Heard:
    """Sums over answers. `decisions` and `replicas`: what the router's headers said. `row_s` and
    `token_s`: of each request, the time to its first token by rows and that of a later token.
    """

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    replayed: int = 0
    body_bytes: int = 0
    seconds: float = 0.0
    decisions: Counter[str] = field(default_factory=Counter)
    replicas: Counter[str] = field(default_factory=Counter)
    row_s: list[float] = field(default_factory=list)
    token_s: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached / max(1, self.prompt)

    @property
    def costs(self) -> Costs:
        """Of the quicker quarter, which had waited for few others."""
        row_s, token_s = (np.percentile(values, 25) for values in (self.row_s, self.token_s))
        return Costs(round(float(token_s), 6), round(float(row_s), 6), 0.0)

    def add(self, meta: dict[str, int], body: bytes, first_s: float, later_s: float) -> None:
        self.requests += 1
        self.prompt += meta["prompt_tokens"]
        self.cached += meta["cached_tokens"]
        self.replayed += meta["replayed_tokens"]
        self.body_bytes += len(body)
        rows = meta["prompt_tokens"] - meta["cached_tokens"] + meta["replayed_tokens"]
        self.row_s.append(first_s / rows)
        if meta["completion_tokens"] > 1:
            self.token_s.append(later_s / (meta["completion_tokens"] - 1))


class Player:
    def __init__(self, clients: Clients, url: str, vocab: int) -> None:
        self._clients = clients
        self._url = url
        self._vocab = vocab
        self._speller = Speller()
        self._texts: dict[tuple[int, int], list[int]] = {}  # by client and owner, with outputs
        self._heard = Heard()
        self._began = 0.0

    async def run(self) -> Heard:
        """Raises RuntimeError for an answer that is not whole."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0)
        self._began = time.monotonic()
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
            asyncio.TaskGroup() as tasks,
        ):
            for client in range(len(self._clients)):
                for at_s, turn in self._clients.first_turns(client):
                    tasks.create_task(self._play(http, tasks, client, turn, at_s))
        self._heard.seconds = time.monotonic() - self._began
        return self._heard

    async def _play(
        self,
        http: aiohttp.ClientSession,
        tasks: asyncio.TaskGroup,
        client: int,
        number: int,
        at_s: float,
    ) -> None:
        await asyncio.sleep(max(0.0, at_s - (time.monotonic() - self._began)))
        turn = self._clients.turn(client, number)
        ids = self._prompt(client, turn)
        made = await self._ask(http, client, ids, turn.output)
        self._texts[client, turn.owner] = ids + made
        now = time.monotonic() - self._began
        for due_s, later in self._clients.next_turns(client, number, now):
            tasks.create_task(self._play(http, tasks, client, later, due_s))

    def _prompt(self, client: int, turn: Turn) -> list[int]:
        """What earlier turns left, then ids of its own."""
        ids: list[int] = []
        for owner, start, end in turn.runs[:-1]:
            ids += self._texts[client, owner][start:end]
        drawn = drawn_ids(self._speller.ids(turn, client), self._vocab)
        return ids + drawn[len(ids) : turn.prompt]

    async def _ask(
        self, http: aiohttp.ClientSession, client: int, ids: list[int], output: int
    ) -> list[int]:
        sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
        body = orjson.dumps({"input_ids": ids, "sampling_params": sampling, "stream": True})
        headers = {
            "content-type": "application/json",
            "x-session-id": self._clients.session_id(client),
        }
        began = time.monotonic()
        async with http.post(f"{self._url}/generate", data=body, headers=headers) as response:
            text = await response.content.readany()
            first_s = time.monotonic() - began
            text += await response.read()
            if response.status != 200 or not text.rstrip().endswith(b"[DONE]"):
                raise RuntimeError(f"status {response.status}: {text[-300:]!r}")
        last = orjson.loads(text.split(b"\n\n")[-3].removeprefix(b"data: "))
        heard = self._heard
        heard.add(last["meta_info"], body, first_s, time.monotonic() - began - first_s)
        heard.decisions[response.headers.get("x-router-decision", "none")] += 1
        heard.replicas[response.headers.get("x-router-replica", self._url)] += 1
        made = [int(token) for token in last["output_ids"]]
        if len(made) != output:
            raise RuntimeError(f"{len(made)} tokens instead of {output}")
        return made


def drawn_ids(spelled: array[int], vocab: int) -> list[int]:
    """Ids of a vocabulary, equal where `spelled` is equal and otherwise as good as random."""
    return [FIRST_ID + value for value in drawn(spelled, vocab - FIRST_ID)]
