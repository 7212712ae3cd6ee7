"""A run as one JSON file: what was asked and told, when, and what the caches gave.

    {format, program, backend, began_at, seconds, error, messages: [...],
     branches: [{id, parent, start_s}], entries: [...], values: {variable: value}}

Entries are those of `entry_json.py`, but that prompts of chats name their messages by index: an
agent sends all of them in each of its turns, and the file has each once. Values that JSON does not
have are saved as their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ..client.errors import ProgramError, describe
from .entry_json import entry_json, read_entry
from .recorder import Entry
from .run import Run

Json = dict[str, Any]

FORMAT = "treadle-trace-1"
OPTION = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
SUMMED = ("prompt_tokens", "completion_tokens", "cached_tokens", "replayed_tokens")


@dataclass(frozen=True, slots=True)
class BranchSpan:
    id: str
    parent: str | None
    start_s: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Of model requests, in tokens; commits count as requests."""

    num_requests: int
    num_tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    replayed_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run did.

    >>> import tempfile
    >>> state = tr.function(lambda s: s.append("1, 2," + tr.gen("x"))).run()
    >>> path = state.save_trace(tempfile.mkstemp()[1])
    >>> tr.Trace.load(path).totals().num_requests
    1
    """

    program: str
    backend: str
    began_at: float
    seconds: float
    branches: tuple[BranchSpan, ...]
    entries: tuple[Entry, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def save(self, path: str | Path) -> Path:
        """Raises ProgramError for facts of a backend that JSON does not have."""
        try:
            written = self._written()
        except (TypeError, ValueError, RecursionError) as error:
            raise ProgramError(f"the trace cannot be written: {describe(error)}") from None
        target = Path(path)
        target.write_bytes(written)
        return target

    def _written(self) -> bytes:
        entries = [entry_json(entry) for entry in self.entries]
        messages = _fold(entries)
        content = {
            "format": FORMAT,
            "program": self.program,
            "backend": self.backend,
            "began_at": self.began_at,
            "seconds": self.seconds,
            "error": self.error,
            "branches": list(self.branches),
            "messages": messages,
            "entries": entries,
            "values": {_text(name): _json_value(value) for name, value in self.values.items()},
        }
        return orjson.dumps(content, default=str, option=OPTION)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Raises ProgramError for a file of another form."""
        try:
            found = orjson.loads(Path(path).read_bytes())
            if found["format"] != FORMAT:
                raise ProgramError(f"{path}: format is {found['format']!r}, expected {FORMAT!r}")
            _unfold(found["entries"], found["messages"])
            return cls(
                found["program"],
                found["backend"],
                found["began_at"],
                found["seconds"],
                tuple(BranchSpan(**each) for each in found["branches"]),
                tuple(map(read_entry, found["entries"])),
                found["values"],
                found["error"],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ProgramError(f"{path} is no trace of a run: {error!r}") from None

    def totals(self) -> Totals:
        sums = dict.fromkeys(SUMMED, 0)
        requests = tools = 0
        for entry in self.entries:
            if entry.kind == "tool":
                tools += 1
                continue
            requests += 1
            meta = entry_meta(entry)
            for key in SUMMED:
                sums[key] += meta.get(key) or 0
        return Totals(requests, tools, **sums)


def _json_value(value: object) -> object:
    """The value, or its text if JSON does not have it."""
    try:
        orjson.dumps(value, default=str, option=OPTION)
    except (TypeError, ValueError, RecursionError):
        return _text(value)
    return value


def _text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # of foreign code
        text = f"a {type(value).__name__}"
    return text.encode(errors="backslashreplace").decode()


def _prompts(entry: Json) -> list[Json]:
    asked = entry["asked"]
    one = [asked["prompt"]] if "prompt" in asked else []
    found: list[Json] = [*one, *asked.get("bases", ()), *asked.get("prompts", ())]
    return [prompt for prompt in found if "messages" in prompt]


def _fold(entries: Sequence[Json]) -> list[Json]:
    """Puts indices in the place of messages; the messages."""
    places: dict[bytes, int] = {}
    messages: list[Json] = []
    for prompt in (prompt for entry in entries for prompt in _prompts(entry)):
        indices = []
        for message in prompt["messages"]:
            key = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
            if key not in places:
                places[key] = len(messages)
                messages.append(message)
            indices.append(places[key])
        prompt["messages"] = indices
    return messages


def _unfold(entries: Sequence[Json], messages: Sequence[Json]) -> None:
    for prompt in (prompt for entry in entries for prompt in _prompts(entry)):
        prompt["messages"] = [messages[index] for index in prompt["messages"]]


def entry_meta(entry: Entry) -> Json:
    """Of its first output; {} for a tool call and for what has not ended well."""
    told = entry.told
    if told is None or entry.kind == "tool":
        return {}
    if isinstance(told, list | tuple):
        return dict(told[0].meta)
    return dict(told) if isinstance(told, dict) else dict(_scores_meta(told))


def _scores_meta(told: Any) -> Json:
    return dict(told.meta)


def trace_of(run: Run, values: Mapping[str, Any], error: Exception | None) -> Trace:
    recorder = run.recorder
    return Trace(
        program=run.program,
        backend=run.backend.name,
        began_at=recorder.began_at,
        seconds=recorder.now() if recorder.ended_s is None else recorder.ended_s,
        branches=tuple(
            BranchSpan(session.id, session.parent, start) for session, start in recorder.branches
        ),
        entries=tuple(recorder.entries),
        values=dict(values),
        error="" if error is None else describe(error),
    )
