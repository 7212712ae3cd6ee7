"""The backend of our own server, or of a router before several: everything the language has.

text     POST /generate with the text
chat     POST /v1/chat/completions with the messages, so the template is the server's
scores   POST /tokenize for the ids of prompt and choices, then /generate with those ids
commit   /generate of the prompt's ids with no new token
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from ..client.background import background
from ..client.client import Client, Retry
from ..client.errors import BrokenAnswer, ProgramError, Refused, Unreachable
from .backend import Answer, AnswerRequest, Delta, OnDelta, ScoreRequest, Scores, Session
from .chat_wire import ChatStream, chat_body, logprob_fields, read_whole, reading
from .choices import ChoiceScore
from .ir import Logprobs
from .prompt import ChatPrompt, Prompt, TextPrompt

Json = dict[str, Any]

NOTHING_NEW = {"max_new_tokens": 0, "temperature": 0}
MAX_RELEASED = 4096  # sessions that the server takes at once
ABSENT = (404, 405, 501)  # a server without the route


class RuntimeEndpoint:
    """A running server or router, by its URL.

    >>> backend = tr.RuntimeEndpoint("http://127.0.0.1:30000")
    >>> backend.url
    'http://127.0.0.1:30000'
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: bool | str = True,
        chat_template_name: str | None = None,
        *,
        model: str = "default",
        retry_s: float = 30.0,
    ) -> None:
        """`verify`: of its TLS certificate; a path names your own authority. `model`: what requests
        call it, for routers of several models. `retry_s`: for how long a server that is away is
        waited for. Raises ProgramError for `chat_template_name`: the template is the server's."""
        if chat_template_name is not None:
            raise ProgramError(
                "chat_template_name: chats are rendered by the server; start it with "
                f"--chat-template {chat_template_name}"
            )
        self.url = base_url.rstrip("/")
        self._model = model
        self._client = Client(
            self.url, api_key=api_key, verify=verify, retry=Retry(window_s=retry_s)
        )
        self._releases_sessions = True

    @property
    def name(self) -> str:
        return self.url

    async def answer(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None = None
    ) -> Sequence[Answer]:
        if isinstance(request.prompt, TextPrompt):
            return await self._answer_text(request, session, on_delta)
        return await self._answer_chat(request, session, on_delta)

    async def _answer_text(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None
    ) -> Sequence[Answer]:
        assert isinstance(request.prompt, TextPrompt)
        body = {
            "text": request.prompt.text,
            "sampling_params": request.sampling.native(),
            **_native_logprobs(request.logprobs),
            **session.body(),
        }
        if request.sampling.priority is not None:
            body["priority"] = request.sampling.priority
        if on_delta is None:
            found = await self._client.post("/generate", body, session.headers())
            with reading("answer of /generate"):
                return [_native_answer(each) for each in _as_list(found)]
        return await self._stream_text(body, session, request.sampling.num_outputs, on_delta)

    async def _stream_text(
        self, body: Json, session: Session, num_outputs: int, on_delta: OnDelta
    ) -> list[Answer]:
        last: dict[int, Json] = {}
        shown = 0
        body = {**body, "stream": True}
        async for event in self._client.stream("/generate", body, session.headers()):
            with reading("event of /generate"):
                index, text = event.get("index", 0), str(event["text"])
                last[index] = {**last.get(index, {}), **event}
            if index == 0 and len(text) > shown:
                on_delta(Delta(text[shown:]))
                shown = len(text)
        if len(last) != num_outputs:
            raise BrokenAnswer(f"the stream had {len(last)} outputs, asked for {num_outputs}")
        with reading("event of /generate"):
            return [_native_answer(last[index]) for index in sorted(last)]

    async def _answer_chat(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None
    ) -> Sequence[Answer]:
        fields = logprob_fields(request.logprobs)
        body = {**chat_body(request, self._model), **fields, **session.body()}
        path, wanted = "/v1/chat/completions", request.logprobs
        if on_delta is None or "prompt_logprobs" in fields:  # which no stream carries
            answers = read_whole(await self._client.post(path, body, session.headers()), wanted)
            if on_delta is not None:
                on_delta(Delta(answers[0].text, answers[0].reasoning))
            return answers
        began, first_s = time.monotonic(), None
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        stream = ChatStream(request.sampling.num_outputs, wanted)
        async for chunk in self._client.stream(path, body, session.headers()):
            delta = stream.push(chunk)
            if delta is not None:
                first_s = time.monotonic() - began if first_s is None else first_s
                on_delta(delta)
        return stream.answers({} if first_s is None else {"first_token_latency": first_s})

    async def score(self, request: ScoreRequest, session: Session) -> Scores:
        """The position from which choices are scored is where the first of them leaves the prompt,
        so a token that reaches over the border counts. Raises ProgramError for an empty choice."""
        rows = await self._tokenize([*request.bases, *request.prompts])
        bases, choices = rows[: len(request.bases)], rows[len(request.bases) :]
        base = bases[0][: _common(bases)]
        start = min(_common([base, row]) for row in choices)
        if any(len(row) <= start for row in choices):
            raise ProgramError("a choice adds no token to the prompt: it must not be empty")
        meta = await self._commit_ids(base[:start], session) if start and len(choices) > 1 else {}
        found = await self._scored(choices, start, session)
        alone: list[list[Any]] = [[] for _ in choices]
        if request.needs_unconditional:
            alone = await self._scored([row[start:] for row in choices], 0, session)
        with reading("list of log-probabilities"):
            scores = [_score(own, other) for own, other in zip(found, alone, strict=True)]
        return Scores(tuple(scores), meta)

    async def _scored(
        self, rows: list[list[int]], start: int, session: Session
    ) -> list[list[list[Any]]]:
        body = {
            "input_ids": rows,
            "sampling_params": NOTHING_NEW,
            "return_logprob": True,
            "logprob_start_len": start,
            **session.body(),
        }
        found = await self._client.post("/generate", body, session.headers())
        with reading("list of log-probabilities"):
            return [each["meta_info"]["input_token_logprobs"] for each in found]

    async def commit(self, prompt: Prompt, session: Session) -> Json:
        (ids,) = await self._tokenize([prompt])
        return await self._commit_ids(ids, session)

    async def _commit_ids(self, ids: list[int], session: Session) -> Json:
        body = {"input_ids": ids, "sampling_params": NOTHING_NEW, **session.body()}
        found = await self._client.post("/generate", body, session.headers())
        with reading("answer of /generate"):
            return dict(found["meta_info"])

    async def _tokenize(self, prompts: Iterable[Prompt]) -> list[list[int]]:
        """Texts in one request, chats in one each."""
        prompts = list(prompts)
        texts = [p.text for p in prompts if isinstance(p, TextPrompt)]
        if len(texts) == len(prompts):
            found = await self._client.post("/tokenize", {"prompt": texts})
            with reading("list of tokens"):
                return [list(row) for row in found["tokens"]]
        chats = [p for p in prompts if isinstance(p, ChatPrompt)]
        answers = await asyncio.gather(
            *(self._client.post("/tokenize", chat.body()) for chat in chats)
        )
        with reading("list of tokens"):
            return [list(answer["tokens"]) for answer in answers]

    async def token_ids(self, prompt: Prompt) -> list[int]:
        """The prompt as the server encodes it."""
        return (await self._tokenize([prompt]))[0]

    async def split_reasoning(self, text: str, parser: str | None) -> tuple[str, str]:
        body = {"text": text, "reasoning_parser": parser or "auto"}
        found = await self._client.post("/separate_reasoning", body)
        with reading("answer of /separate_reasoning"):
            return found["reasoning_text"], found["text"]

    async def close_sessions(self, sessions: Sequence[Session]) -> None:
        """The server gives up first what it keeps for these alone. Told once, by way of the first,
        and no error when it is not heard: a server that is gone, or that has no such route, keeps
        nothing for them."""
        if not self._releases_sessions:
            return
        names = [session.id for session in sessions]
        try:
            for start in range(0, len(names), MAX_RELEASED):
                body = {"session_id": names[start : start + MAX_RELEASED]}
                headers = sessions[0].headers()
                await self._client.post("/release_session", body, headers, is_hint=True)
        except Refused as error:
            self._releases_sessions = error.status not in ABSENT
        except Unreachable:
            return

    async def post(self, path: str, body: Json) -> Any:
        """Any route of the server, from a coroutine. Raises Refused, Unreachable."""
        return await asyncio.wrap_future(background().start(self._client.post(path, body)))

    def flush_cache(self) -> None:
        """Empties the prefix cache. Raises Refused while requests run."""
        background().wait(self._client.post("/flush_cache", {}))

    def get_server_info(self) -> Json:
        """Settled options and state of the server."""
        found = background().wait(self._client.get("/server_info"))
        with reading("answer of /server_info"):
            return dict(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections; the next request opens new ones."""
        background().wait(self._client.aclose())

    async def aclose(self) -> None:
        """As `close`, from a coroutine."""
        await asyncio.wrap_future(background().start(self._client.aclose()))


def _as_list(found: Any) -> list[Json]:
    return found if isinstance(found, list) else [found]


def _native_logprobs(wanted: Logprobs | None) -> Json:
    if wanted is None:
        return {}
    return {
        "return_logprob": True,
        "logprob_start_len": wanted.start,
        "top_logprobs_num": wanted.top,
        "return_text_in_logprobs": wanted.has_text,
    }


def _native_answer(found: Json) -> Answer:
    meta = found["meta_info"]
    if (meta.get("finish_reason") or {}).get("type") == "abort":
        message = meta["finish_reason"].get("message")
        raise BrokenAnswer(f"the server aborted the request: {message}")
    return Answer(found["text"], meta={**meta, "output_ids": found.get("output_ids")})


def _common(rows: Sequence[Sequence[int]]) -> int:
    """How many ids all rows begin with."""
    shortest = min(len(row) for row in rows)
    first = rows[0]
    for position in range(shortest):
        if any(row[position] != first[position] for row in rows):
            return position
    return shortest


def _score(own: list[list[Any]], alone: list[list[Any]]) -> ChoiceScore:
    """A prompt's very first token has no log-probability, and counts as certain."""
    return ChoiceScore(
        token_ids=tuple(entry[1] for entry in own),
        logprobs=tuple(0.0 if entry[0] is None else entry[0] for entry in own),
        unconditional=tuple(entry[0] for entry in alone),
    )
