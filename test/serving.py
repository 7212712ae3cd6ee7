"""The HTTP side without an engine: a byte tokenizer, a scripted scheduler, a client in the process.

One id stands for one byte, so a test can spell what the engine says: `engine.reply = b"hello"`.
`FakeEngine.script` decides how a request is answered; with "hold" a test emits by hand.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import httpx
import orjson
from tokenizers import Tokenizer as MergeEngine
from tokenizers import pre_tokenizers
from tokenizers.models import BPE

from test.documented import Documented
from treadle.srt.api.app import make_app
from treadle.srt.api.grammar import GrammarDesk
from treadle.srt.api.output_formats import find_formats
from treadle.srt.api.sampling import SamplingDefaults, SamplingReader
from treadle.srt.api.service import ModelInfo, Service
from treadle.srt.config import ApiSection, ModelSection, NetSection, ServerConfig
from treadle.srt.lifecycle import Ready
from treadle.srt.messages import (
    AbortRequest,
    Done,
    Finish,
    Flush,
    GenerateRequest,
    Message,
    PromptOutput,
    RequestOutput,
    Stats,
    StatsRequest,
    TokenLogprob,
    TokenOutput,
    Usage,
)
from treadle.srt.metrics import HttpMetrics, RequestMetrics
from treadle.srt.net.ipc import Outbox
from treadle.srt.net.wire import encode
from treadle.srt.profiling import Profile, ProfileOptions
from treadle.srt.scores import PromptScores
from treadle.srt.snapshot import Snapshot, SnapshotRequest, TreeOutline
from treadle.srt.tokenizer.chat import ChatTemplate
from treadle.srt.tokenizer.encode import Tokenizer
from treadle.srt.tokenizer.frontend import Frontend
from treadle.srt.tokenizer.limits import Limits
from treadle.srt.tokenizer.prompts import Prompts
from treadle.srt.tokenizer.vocabulary import Spelling, Vocabulary

BOS, EOS, TURN = 256, 257, 258
VOCAB_SIZE = 260
CONTEXT_LEN = 200
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@cache
def byte_tokenizer() -> Tokenizer:
    """Ids 0..255 are the bytes, then BOS, EOS, TURN and one unused id."""
    alphabet = _byte_characters()
    engine = MergeEngine(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.add_special_tokens(["<bos>", "<eos>", "<turn>"])
    return Tokenizer(
        Vocabulary(
            engine=engine,
            spelling=Spelling.BYTE_LEVEL,
            pieces=[*alphabet, "<bos>", "<eos>", "<turn>", ""],
            literals={BOS: "<bos>", EOS: "<eos>", TURN: "<turn>"},
            special=frozenset({BOS, EOS, TURN}),
            prefix=(BOS,),
            suffix=(),
            bos_id=BOS,
            eos_ids=(EOS,),
            role_texts={"bos_token": "<bos>", "eos_token": "<eos>"},
            has_dummy_prefix=False,
            chat_template=None,
            architecture="llama",
        )
    )


def _byte_characters() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    stand_in = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [stand_in[b] for b in range(256)]


def empty_snapshot() -> Snapshot:
    columns = [array("i") for _ in range(7)]
    return Snapshot(0, {}, {}, (), (), TreeOutline(16, 0, 0, *columns))


Answer = Callable[["FakeEngine", GenerateRequest], None]


def echo_reply(engine: FakeEngine, request: GenerateRequest) -> None:
    """All of `engine.reply`, a token per message, then EOS unless it does not stop the request."""
    limit, stops = request.sampling.max_new_tokens, request.sampling.stop_token_ids
    if limit == 0:
        engine.emit(request.rid, [], Finish("length"))
        return
    ids = [*engine.reply, EOS]
    while len(ids) < limit:
        ids.extend([*engine.reply, EOS])
    for count, token in enumerate(ids[:limit], start=1):
        finish = None
        if token in stops and count > request.sampling.min_new_tokens:
            finish = Finish("stop", matched=token)
        elif count == limit:
            finish = Finish("length")
        engine.emit(request.rid, [token], finish)
        if finish is not None:
            return


def hold(engine: FakeEngine, request: GenerateRequest) -> None:
    """Nothing: the test emits."""


def refuse(status: int, message: str, *, was_admitted: bool = True) -> Answer:
    finish = Finish("abort", None, message, status, was_admitted)

    def answer(engine: FakeEngine, request: GenerateRequest) -> None:
        engine.emit(request.rid, [], finish)

    return answer


@dataclass(slots=True, eq=False)
class FakeEngine:
    """A channel to a scheduler that follows a script. `live` is what it still owes an end."""

    reply: bytes = b"hello"
    script: Answer = echo_reply
    cached: int = 0
    replayed: int = 0
    is_flushable: bool = True
    is_profilable: bool = True
    profiles: list[ProfileOptions | None] = field(default_factory=list)
    is_silent: bool = False  # answers no question and no abort
    stats: Stats = field(default_factory=lambda: Stats(0, {}, {}))
    snapshot: Snapshot = field(default_factory=lambda: empty_snapshot())
    sent: list[Message] = field(default_factory=list)
    live: dict[str, GenerateRequest] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    inbox: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    outbox: Outbox | None = None  # instead of `inbox`, for a frontend in a process of its own
    on_abort: Callable[[AbortRequest], None] = lambda message: None

    def send(self, message: Message) -> None:
        encode(message)  # whatever cannot travel fails here as it would there
        self.sent.append(message)
        if self.is_silent:
            return
        if isinstance(message, GenerateRequest):
            self.live[message.rid] = message
            self.counts[message.rid] = 0
            self._score(message)
            self.script(self, message)
        elif isinstance(message, AbortRequest):
            self._abort(message)
        elif isinstance(message, Flush):
            self.put(Done(message.token, self.is_flushable, "1 request runs"))
        elif isinstance(message, Profile):
            self.profiles.append(message.options)
            self.put(Done(message.token, self.is_profilable, "there"))
        elif isinstance(message, StatsRequest):
            self.put(replace(self.stats, token=message.token))
        elif isinstance(message, SnapshotRequest):
            self.put(replace(self.snapshot, token=message.token))

    async def recv(self) -> Message:
        return await self.inbox.get()

    def put(self, message: Message) -> None:
        if self.outbox is None:
            self.inbox.put_nowait(message)
        else:
            self.outbox.send(message)

    def emit(self, rid: str, ids: Sequence[int], finish: Finish | None = None) -> None:
        """One output; tokens for a request that has ended are not sent."""
        request = self.live.get(rid)
        if request is None:
            return
        self.counts[rid] += len(ids)
        usage = Usage(len(request.prompt_ids), self.counts[rid], self.cached, self.replayed)
        logprobs: tuple[TokenLogprob | None, ...] = ()
        if request.top_logprobs is not None:
            chosen = tuple(-2.0 - i for i in range(len(request.logprob_ids)))
            top = request.top_logprobs
            logprobs = tuple(replace(self._logprob(token, top), chosen=chosen) for token in ids)
        output = RequestOutput(request.rid, tuple(ids), usage, finish, logprobs, queue_s=0.25)
        self.put(TokenOutput((output,)))
        if finish is not None:
            del self.live[rid]

    @property
    def requests(self) -> list[GenerateRequest]:
        return [message for message in self.sent if isinstance(message, GenerateRequest)]

    @property
    def aborts(self) -> list[AbortRequest]:
        return [message for message in self.sent if isinstance(message, AbortRequest)]

    def _abort(self, message: AbortRequest) -> None:
        self.on_abort(message)
        if message.reason == "stop":
            self.emit(message.rid, [], Finish("stop"))
        else:
            self.emit(message.rid, [], Finish("abort", message="aborted", status=499))

    def _logprob(self, token: int, num_top: int) -> TokenLogprob:
        tops = tuple((token + i) % VOCAB_SIZE for i in range(num_top))
        return TokenLogprob(-0.5, tops, tuple(-0.5 - i for i in range(num_top)))

    def _score(self, request: GenerateRequest) -> None:
        """Prompt tokens in chunks of three: token t has logprob -t - 1, the ids after it and those
        asked for less by one each."""
        if request.logprob_start is None:
            return
        first = max(request.logprob_start, 1)
        for start in range(first, len(request.prompt_ids), 3):
            tokens = request.prompt_ids[start : start + 3]
            top, ids = range(request.top_logprobs or 0), range(len(request.logprob_ids))
            scores = PromptScores(
                array("d", [-t - 1.0 for t in tokens]),
                array("i", [1] * len(tokens)),
                array("i", [(t + i) % VOCAB_SIZE for t in tokens for i in top]),
                array("d", [-t - 1.0 - i for t in tokens for i in top]),
                array("d", [-t - 2.0 - i for t in tokens for i in ids]),
            )
            self.put(TokenOutput((), (PromptOutput(request.rid, start, scores),)))


@dataclass(slots=True, eq=False)
class Bench:
    """A served app: HTTP client, engine, and what is between them."""

    client: httpx.AsyncClient
    engine: FakeEngine
    service: Service
    app: Any

    @property
    def frontend(self) -> Frontend:
        return self.service.frontend

    async def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(
            path, content=data, headers={"content-type": "application/json", **named}
        )

    async def events(self, path: str, body: dict[str, object]) -> list[dict[str, Any]]:
        """The parsed events of a stream, which must be well framed and end with [DONE]."""
        response = await self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        return parse_events(response.text)


def parse_events(text: str) -> list[dict[str, Any]]:
    lines = text.split("\n\n")
    assert lines.pop() == ""
    assert lines.pop() == "data: [DONE]"
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [orjson.loads(line.removeprefix("data: ")) for line in lines]


def make_service(
    engine: FakeEngine,
    net: NetSection,
    model: ModelSection | None = None,
    context_len: int = CONTEXT_LEN,
) -> Service:
    tokenizer, limits = byte_tokenizer(), Limits(context_len, VOCAB_SIZE)
    metrics = RequestMetrics("tiny")
    template = ChatTemplate(TEMPLATE, name="tiny", tokens=tokenizer.role_texts)
    section = model or ModelSection(served_name="tiny")
    frontend = Frontend(engine, tokenizer, metrics)
    return Service(
        frontend=frontend,
        prompts=Prompts(tokenizer, template, limits),
        tokenizer=tokenizer,
        limits=limits,
        sampling=SamplingReader(SamplingDefaults(), limits, tokenizer.eos_ids),
        grammars=GrammarDesk(tokenizer, is_on=True),
        formats=find_formats(section, "tiny", template, tokenizer),
        model=ModelInfo("tiny", "/models/tiny", "/models/tiny", "TinyForCausalLM", "tiny", 16, 7),
        config=ServerConfig(model=section, net=net),
        metrics=metrics,
        http_metrics=HttpMetrics(metrics.registry),
        version="1.2.3",
    )


READY = Ready("scheduler", 0, num_pages=11, num_slots=5, weight_bytes=10**9, kv_bytes=2 * 10**9)


@asynccontextmanager
async def serving(
    engine: FakeEngine | None = None,
    net: NetSection | None = None,
    *,
    api: ApiSection | None = None,
    is_ready: bool = True,
    model: ModelSection | None = None,
    context_len: int = CONTEXT_LEN,
) -> AsyncIterator[Bench]:
    engine = engine or FakeEngine()
    service = make_service(engine, net or NetSection(), model, context_len)
    config = replace(service.config, api=api or ApiSection())
    service = replace(service, config=config)
    receiving = asyncio.create_task(service.frontend.run())
    if is_ready:
        engine.put(READY)
        await service.frontend.serving.wait()
    app = make_app(service, "treadle serve tiny")
    transport = httpx.ASGITransport(Documented(app))
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://tiny", trust_env=False
        ) as client:
            yield Bench(client, engine, service, app)
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


def prompt(text: str) -> array[int]:
    return array("i", [BOS, *text.encode()])
