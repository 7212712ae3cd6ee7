"""The options of a run, told apart from the arguments of its program; and the default backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..client.errors import ProgramError
from .backend import Backend
from .ir import Logprobs
from .past import Past
from .run import Run
from .sampling import FIELD_NAMES, Sampling, schema_text
from .trace import Trace

Json = dict[str, Any]

ALIASES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
SAMPLING = FIELD_NAMES | set(ALIASES)
LOGPROBS = ("return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs")
RUN = ("backend", "stream", "chat_template_kwargs", "resume", "session_id", "use_thread")
NAMES = frozenset({*SAMPLING, *LOGPROBS, *RUN})
DEFAULTS = Sampling(max_new_tokens=128, temperature=1.0)


@dataclass(slots=True)
class Default:
    """The backend of runs that name none; the only thing here that a program changes."""

    backend: Backend | None = None

    def get(self) -> Backend:
        """Raises ProgramError."""
        if self.backend is None:
            raise ProgramError(
                "there is no backend: call set_default_backend(RuntimeEndpoint(url)), or give "
                "run(backend=...)"
            )
        return self.backend


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class Options:
    sampling: Sampling = DEFAULTS
    backend: Backend | None = None
    is_streaming: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)
    resume: Trace | None = None
    session_id: str | None = None
    logprobs: Logprobs | None = None

    def make_run(self, program: str) -> Run:
        run = Run(
            self.backend or DEFAULT.get(),
            self.sampling,
            is_streaming=self.is_streaming,
            variables=self.variables,
            past=None if self.resume is None else Past(self.resume.entries),
            logprobs=self.logprobs,
            program=program,
        )
        if self.session_id is not None:
            run.session_id = self.session_id
        return run


def read_options(given: Mapping[str, Any], own: frozenset[str]) -> tuple[Options, Json]:
    """Options, and the rest: arguments of the program, whose parameters `own` go first.
    `use_thread` has no effect: a program that streams always has a thread, one that does not never
    needs one."""
    rest = {name: value for name, value in given.items() if name in own or name not in NAMES}
    given = {name: value for name, value in given.items() if name not in rest}
    sampling = {ALIASES.get(n, n): v for n, v in given.items() if n in SAMPLING and v is not None}
    if "stop" in sampling:
        sampling["stop"] = stop_strings(sampling["stop"])
    if "json_schema" in sampling:
        sampling["json_schema"] = schema_text(sampling["json_schema"])
    resume = given.get("resume")
    options = Options(
        Sampling(**sampling).over(DEFAULTS),
        given.get("backend"),
        bool(given.get("stream")),
        given.get("chat_template_kwargs") or {},
        Trace.load(resume) if isinstance(resume, str | Path) else resume,
        _session_id(given.get("session_id")),
        read_logprobs(*(given.get(name) for name in LOGPROBS)),
    )
    return options, rest


def _session_id(given: object) -> str | None:
    """It travels in a header, too. Raises ProgramError for what one cannot hold."""
    if given is None:
        return None
    is_word = isinstance(given, str) and given.isascii() and given.isprintable()
    if not isinstance(given, str) or not is_word or not given or given != given.strip():
        raise ProgramError(f"session_id must be printable ASCII text, got {given!r:.80}")
    return given


def read_logprobs(
    wanted: bool | None, start: int | None, top: int | None, has_text: bool | None
) -> Logprobs | None:
    if not wanted:
        return None
    return Logprobs(-1 if start is None else start, top or 0, bool(has_text))


def stop_strings(stop: str | list[str] | tuple[str, ...] | None) -> str | list[str] | None:
    """None for an empty list."""
    if stop is None or isinstance(stop, str):
        return stop
    return list(stop) or None
