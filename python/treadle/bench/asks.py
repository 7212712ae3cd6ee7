"""What is asked of a server and what it answered: the values that all of the bench passes around.

A prompt is text, token ids or messages. Times are seconds; those of an answer count from the moment
its request was sent.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


Prompt: TypeAlias = "str | array[int] | tuple[Message, ...]"  # quoted: evaluated by checkers only


@dataclass(frozen=True, slots=True)
class Ask:
    """`session` is sent as `X-Session-ID`, "" for none; `headers` beside it."""

    prompt: Prompt
    output_len: int
    session: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What every request of a run is sent with. `top_logprobs` below 0: no logprobs. `wants_tiers`:
    servers that tell only when asked shall say where cached tokens were found.
    """

    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = True
    stream: bool = True
    top_logprobs: int = -1
    logprob_start: int = -1
    lora: str = ""
    wants_tiers: bool = False
    extra: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded event of a stream, or a whole answer."""

    at_s: float
    data: Json


@dataclass(frozen=True, slots=True)
class Tiers:
    """Cached tokens by where they were found. `backend`: what holds the stored ones."""

    device: int
    host: int
    storage: int
    backend: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server said. `arrivals`: (time, tokens that came then). `rows`: prompt rows it ran,
    replayed ones included; None where it tells nothing of its cache, as `cached` then is.
    """

    arrivals: tuple[tuple[float, int], ...] = ()
    text: str = ""
    output_ids: tuple[int, ...] | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached: int | None = None
    replayed: int = 0
    tiers: Tiers | None = None

    @property
    def rows(self) -> int | None:
        return None if self.cached is None else self.prompt_tokens - self.cached + self.replayed


@dataclass(frozen=True, slots=True)
class Answer:
    """`sent_s` counts from the start of the run. `error` is "" for an answer that is whole."""

    sent_s: float
    input_len: int
    said: Reading
    error: str = ""

    @property
    def ttft_s(self) -> float:
        return self.said.arrivals[0][0]

    @property
    def e2e_s(self) -> float:
        return self.said.arrivals[-1][0]

    @property
    def prompt_tokens(self) -> int:
        """As the server counts, or as was asked where it tells nothing."""
        return self.said.prompt_tokens or self.input_len

    @property
    def itls_s(self) -> list[float]:
        """Gaps between tokens; those that came together share the gap before them evenly."""
        gaps: list[float] = []
        before = self.ttft_s
        for at_s, count in self.said.arrivals[1:]:
            gaps += [(at_s - before) / count] * count
            before = at_s
        return gaps

    @property
    def tpot_s(self) -> float | None:
        """Per token after the first; None where only one came."""
        later = self.said.output_tokens - 1
        return (self.e2e_s - self.ttft_s) / later if later > 0 else None


def extended(prompt: Prompt, reply: Reading, addition: Prompt) -> Prompt:
    """The next prompt of a conversation: what the model said, then what is new.

    Raises ValueError where a prompt of ids needs output ids that the server does not send.
    """
    if isinstance(prompt, str) and isinstance(addition, str):
        return prompt + reply.text + addition
    if isinstance(prompt, tuple) and isinstance(addition, tuple):
        return (*prompt, Message("assistant", reply.text), *addition)
    if isinstance(prompt, array) and isinstance(addition, array):
        if reply.output_ids is None:
            raise ValueError("this backend sends no output ids: send text, not ids")
        return prompt + array("i", reply.output_ids) + addition
    raise ValueError("a conversation is text, ids or messages throughout")


def failed(sent_s: float, input_len: int, error: str) -> Answer:
    return Answer(sent_s, input_len, Reading(), error)


def engine_state(server_info: Json | None) -> Json:
    """What SGLang's /server_info tells of its engine; {} where a server tells nothing."""
    states = (server_info or {}).get("internal_states")
    found = states[0] if isinstance(states, list) and states else None
    return found if isinstance(found, dict) else {}
