"""The backend of any endpoint that speaks the OpenAI protocol. What it lacks is refused by name:

chats        `gen` as a whole assistant turn, tools, JSON schemas; no select, no logprobs of
             prompts, no regex, no top_k
texts        `gen` by /completions; `select` where the endpoint echoes log-probabilities, by
             the two methods that need no unconditional ones
forks        work; the prefix is not committed first, as no request generates nothing
sessions     are sent as headers only, as unknown body fields are refused by some
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from ..client.background import background
from ..client.client import Client, Retry
from ..client.errors import BrokenAnswer, ProgramError, Unsupported
from .backend import Answer, AnswerRequest, Delta, OnDelta, ScoreRequest, Scores, Session
from .chat_wire import ChatStream, chat_body, finish, read_usage, read_whole, reading
from .choices import ChoiceScore
from .prompt import ChatPrompt, Prompt, TextPrompt

Json = dict[str, Any]


class OpenAI:
    """An endpoint by the URL that openai clients are given, which ends in /v1.

    >>> backend = tr.OpenAI("some-model", base_url="http://127.0.0.1:8000/v1", api_key="none")
    >>> backend.name
    'http://127.0.0.1:8000/v1 (some-model)'
    """

    def __init__(
        self,
        model_name: str,
        is_chat_model: bool | None = None,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        extensions: Sequence[str] = (),
        retry_s: float = 30.0,
    ) -> None:
        """`is_chat_model` None takes chats and texts; otherwise the other kind is refused.
        `api_key` None: that of OPENAI_API_KEY. `extensions`: fields beyond the protocol that this
        endpoint knows, as "top_k" or "regex"."""
        self._model = model_name
        self._is_chat_model = is_chat_model
        self._extensions = frozenset(extensions)
        self._url = base_url.rstrip("/")
        key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        self._client = Client(
            self._url, api_key=key, retry=Retry(window_s=retry_s), uses_proxies=True
        )

    @property
    def name(self) -> str:
        return f"{self._url} ({self._model})"

    async def answer(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None = None
    ) -> Sequence[Answer]:
        self._check(request)
        if isinstance(request.prompt, ChatPrompt):
            return await self._answer_chat(request, session, on_delta)
        return await self._answer_text(request.prompt, request, session, on_delta)

    def _check(self, request: AnswerRequest) -> None:
        unknown = set(request.sampling.openai_extensions()) - self._extensions
        if unknown:
            raise self._lacks(", ".join(sorted(unknown)))
        is_chat = isinstance(request.prompt, ChatPrompt)
        if self._is_chat_model is not None and is_chat != self._is_chat_model:
            raise self._lacks("a chat" if is_chat else "text without roles")
        if isinstance(request.prompt, ChatPrompt) and request.prompt.end == "inside":
            raise self._lacks("a generation that goes on inside of an assistant turn")
        if request.logprobs is not None and request.logprobs.start >= 0:
            raise self._lacks("logprob_start_len")
        if not is_chat and request.sampling.json_schema is not None:
            raise self._lacks("json_schema in a text")

    def _lacks(self, what: str) -> Unsupported:
        return Unsupported(
            f"{self.name}: {what} is not part of the OpenAI protocol; a treadle server has it "
            "(RuntimeEndpoint)"
        )

    async def _answer_chat(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None
    ) -> Sequence[Answer]:
        assert isinstance(request.prompt, ChatPrompt)
        body = _plain_chat(chat_body(request, self._model), request)
        if request.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": request.logprobs.top}
        path, headers = "/chat/completions", session.headers()
        if on_delta is None:
            return read_whole(await self._client.post(path, body, headers), request.logprobs)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        stream = ChatStream(request.sampling.num_outputs, request.logprobs)
        async for chunk in self._client.stream(path, body, headers):
            delta = stream.push(chunk)
            if delta is not None:
                on_delta(delta)
        return stream.answers({})

    async def _answer_text(
        self,
        prompt: TextPrompt,
        request: AnswerRequest,
        session: Session,
        on_delta: OnDelta | None,
    ) -> Sequence[Answer]:
        body = {"model": self._model, "prompt": prompt.text, **request.sampling.chat()}
        if request.logprobs is not None:
            body["logprobs"] = request.logprobs.top
        found = await self._client.post("/completions", body, session.headers())
        with reading("completion"):
            usage = read_usage(found.get("usage") or {})
            answers = [
                Answer(
                    choice["text"],
                    meta={**usage, "finish_reason": finish(choice), **_text_logprobs(choice)},
                )
                for choice in found["choices"]
            ]
        if on_delta is not None:
            on_delta(Delta(answers[0].text))
        return answers

    async def score(self, request: ScoreRequest, session: Session) -> Scores:
        """By the echo of the completions route. Raises Unsupported for chats."""
        if request.needs_unconditional:
            raise self._lacks("unconditional_likelihood_normalized")
        (base,) = request.bases if len(request.bases) == 1 else (None,)
        texts = [p.text for p in request.prompts if isinstance(p, TextPrompt)]
        if not isinstance(base, TextPrompt) or len(texts) != len(request.prompts):
            raise self._lacks("select in a chat")
        if any(len(text) <= len(base.text) for text in texts):
            raise ProgramError("a choice adds no text to the prompt: it must not be empty")
        body = {"model": self._model, "prompt": texts, "max_tokens": 1, "temperature": 0,
                "echo": True, "logprobs": 0}  # fmt: skip
        found = await self._client.post("/completions", body, session.headers())
        with reading("completion"):
            pairs = zip(found["choices"], texts, strict=True)
            echoes = [_echo(choice, text) for choice, text in pairs]
            start = min(_first_new(tokens, len(base.text)) for tokens in echoes)
            scores = _scores([tokens[start:] for tokens in echoes])
            return Scores(scores, read_usage(found.get("usage") or {}))

    async def commit(self, prompt: Prompt, session: Session) -> Json:
        """Nothing: the protocol has no request without a new token."""
        return {}

    async def split_reasoning(self, text: str, parser: str | None) -> tuple[str, str]:
        raise self._lacks("separate_reasoning of a text")

    async def close_sessions(self, sessions: Sequence[Session]) -> None:
        """Nothing: the protocol has no sessions."""

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


def _plain_chat(body: Json, request: AnswerRequest) -> Json:
    """In the protocol's own spelling."""
    body = {k: v for k, v in body.items() if k not in ("json_schema", "add_generation_prompt")}
    if request.sampling.json_schema is not None:
        form = {"name": "answer", "schema": json.loads(request.sampling.json_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _text_logprobs(choice: Json) -> Json:
    found = choice.get("logprobs")
    if not found:
        return {}
    pairs = zip(found["token_logprobs"], found["tokens"], strict=True)
    return {"output_token_logprobs": [[logprob, None, token] for logprob, token in pairs]}


def _echo(choice: Json, text: str) -> list[tuple[float | None, str, int]]:
    """Log-probability, text and end of each token of the prompt. Raises BrokenAnswer."""
    found = choice.get("logprobs")
    if not found or not choice["text"].startswith(text):
        raise BrokenAnswer("the endpoint does not echo a prompt with its log-probabilities")
    tokens: list[tuple[float | None, str, int]] = []
    end = 0
    for logprob, token in zip(found["token_logprobs"], found["tokens"], strict=True):
        if end >= len(text):
            return tokens
        end += len(token)
        tokens.append((logprob, token, end))
    if end < len(text):
        raise BrokenAnswer("the tokens of an echo do not make up its text")
    return tokens


def _first_new(tokens: Sequence[tuple[float | None, str, int]], base_len: int) -> int:
    """The first token that reaches over the base, which is shorter than all of them together."""
    return next(i for i, (_, _, end) in enumerate(tokens) if end > base_len)


def _scores(rows: Sequence[Sequence[tuple[float | None, str, int]]]) -> tuple[ChoiceScore, ...]:
    """The protocol tells no ids, so texts are numbered as they come: the same text, the same."""
    numbers: dict[str, int] = {}
    return tuple(
        ChoiceScore(
            tuple(numbers.setdefault(token, len(numbers)) for _, token, _ in row),
            tuple(0.0 if logprob is None else logprob for logprob, _, _ in row),
            texts=tuple(token for _, token, _ in row),
        )
        for row in rows
    )
