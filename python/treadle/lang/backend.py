"""The protocol that a backend meets, and the values that cross it.

A backend answers three questions: continue this prompt, score these choices, have this prefix in
the cache. It holds no state of a program; sessions are names that requests carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .choices import ChoiceScore
from .ir import Logprobs
from .prompt import Prompt
from .sampling import Sampling
from .tools import ToolCall

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Session:
    """Names the branch for routing and eviction; `parent` is the branch it was forked from.

    >>> tr.Session("b", parent="a").headers()
    {'X-Session-ID': 'b', 'X-Parent-Session-ID': 'a'}
    """

    id: str
    parent: str | None = None

    def headers(self) -> dict[str, str]:
        named = {"X-Session-ID": self.id}
        return {**named, "X-Parent-Session-ID": self.parent} if self.parent else named

    def body(self) -> Json:
        named = {"session_id": self.id}
        return {**named, "parent_session_id": self.parent} if self.parent else named


@dataclass(frozen=True, slots=True)
class Delta:
    """What a stream has added to the first output."""

    text: str = ""
    reasoning: str = ""


OnDelta = Callable[[Delta], None]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Prompt and wishes. `tool_choice` None: as the server decides, which is "auto" with tools.

    >>> tr.AnswerRequest(tr.TextPrompt("1, 2,"), tr.Sampling(max_new_tokens=4)).prompt.text
    '1, 2,'
    """

    prompt: Prompt
    sampling: Sampling
    logprobs: Logprobs | None = None
    tool_choice: str | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One output. `meta`: `prompt_tokens`, `completion_tokens`, `cached_tokens`, `replayed_tokens`,
    `finish_reason` and what else the backend tells.

    >>> tr.Answer("Paris").text
    'Paris'
    """

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    meta: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """`prompts[i]` is the prompt with choice i. What all of `bases` begin with, as tokens, is the
    prompt alone: it is one prompt, or two continuations where an empty one has no spelling.

    >>> text = tr.TextPrompt
    >>> tr.ScoreRequest((text("1,"),), (text("1, 2"), text("1, 3"))).needs_unconditional
    False
    """

    bases: tuple[Prompt, ...]
    prompts: tuple[Prompt, ...]
    needs_unconditional: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """Of the choices, in their order.

    >>> tr.Scores((tr.ChoiceScore((7,), (-0.5,)),)).choices[0].mean
    -0.5
    """

    choices: tuple[ChoiceScore, ...]
    meta: Json = field(default_factory=dict)


class Backend(Protocol):
    """What programs run against. Coroutines run on the background loop and raise ClientErrors.

    >>> class Parrot:
    ...     name = "parrot"
    ...     async def answer(self, request, session, on_delta=None):
    ...         return [tr.Answer("again")]
    ...     async def score(self, request, session):
    ...         raise tr.Unsupported("a parrot does not score")
    ...     async def commit(self, prompt, session):
    ...         return {}
    ...     async def split_reasoning(self, text, parser):
    ...         return "", text
    ...     async def close_sessions(self, sessions):
    ...         pass
    >>> tr.function(lambda s: s.append("Once " + tr.gen("x"))).run(backend=Parrot())["x"]
    'again'
    """

    @property
    def name(self) -> str:
        """For traces and messages."""

    async def answer(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None = None
    ) -> Sequence[Answer]:
        """`sampling.n` answers. `on_delta` is told of the first one as it grows."""

    async def score(self, request: ScoreRequest, session: Session) -> Scores:
        """Log-probabilities of the choices' tokens, from a common position on."""

    async def commit(self, prompt: Prompt, session: Session) -> Json:
        """Has the prompt computed and cached, and generates nothing; meta, {} if it cannot."""

    async def split_reasoning(self, text: str, parser: str | None) -> tuple[str, str]:
        """Reasoning and the rest of a generated text."""

    async def close_sessions(self, sessions: Sequence[Session]) -> None:
        """Nothing more will be asked in these, which are those of one run."""
