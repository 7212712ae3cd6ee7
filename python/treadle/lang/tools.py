"""Tools: Python functions that a model may call, with the JSON schema that it is told of them.

The schema comes from the signature, descriptions from the docstring: its first paragraph, and for
parameters an `Args:` section or `:param name:` lines. Owns running one call: reading its arguments,
the time limit, and turning whatever happens into a text for the model. An exception of a tool is an
answer, not an end; only a cancelled run ends a call.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from ..client.errors import ProgramError, describe
from .schema import Mismatch, SchemaError, object_schema, read_fields
from .threads import Slots

Json = dict[str, Any]

TIMEOUT_S = 60.0
MAX_THREADS = 64  # of plain functions that are waited for at once, in all runs of the process
MAX_ERROR_CHARS = 2000  # a model's context is not for tracebacks
_FOREIGN = (Exception, asyncio.CancelledError)
_PARAM = re.compile(r":param\s+(?:[\w\[\], .]+\s+)?\*{0,2}(\w+)\s*:\s*(.*)")
_ARG = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_SECTION = re.compile(r"(Args|Arguments|Parameters)\s*:\s*$")
_ANY_SECTION = re.compile(r"[A-Z]\w*( \w+)*:\s*$")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it; `arguments` is JSON text, right or not.

    >>> tr.ToolCall("c1", "add", '{"a": 1}').name
    'add'
    """

    id: str
    name: str
    arguments: str

    def message_part(self) -> Json:
        """As messages carry it. Arguments that are no JSON object, which no server would take
        back, are shown to the model as one member."""
        try:
            is_object = isinstance(json.loads(self.arguments or "{}"), dict)
        except (ValueError, RecursionError):
            is_object = False
        own = self.arguments if is_object else json.dumps({"unparsed": self.arguments})
        function = {"name": self.name, "arguments": own or "{}"}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`content` is what the model is told. `error`: "", or what kind of failure it was: "unknown",
    "arguments", "exception", "timeout".

    >>> tr.ToolResult("3").is_error
    False
    """

    content: str
    error: str = ""

    @property
    def is_error(self) -> bool:
        return bool(self.error)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `tool` makes it from a function; made by hand, `parameters` is any JSON schema and
    the arguments are passed on as they come.

    >>> tr.Tool("now", "The time.", {"type": "object", "properties": {}}, lambda: "noon").name
    'now'
    """

    name: str
    description: str
    parameters: Json
    function: Callable[..., object]
    timeout_s: float = TIMEOUT_S
    hints: Mapping[str, Any] | None = None

    def spec(self) -> Json:
        """As requests carry it."""
        function = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**function, "parameters": self.parameters}}

    def read_arguments(self, text: str) -> Json:
        """Keyword arguments. Raises Mismatch, whose message is for the model."""
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError) as error:  # also of too many digits or levels
            raise Mismatch(f"the arguments are not valid JSON: {error}") from None
        if self.hints is None:
            if not isinstance(arguments, dict):
                raise Mismatch(f"arguments must be an object, got {text:.80}")
            return arguments
        required = frozenset(self.parameters.get("required", ()))
        return read_fields(self.hints, required, arguments, "arguments")


@overload
def tool(
    function: Callable[..., object], *, name: str | None = None, timeout_s: float = TIMEOUT_S
) -> Tool: ...


@overload
def tool(
    function: None = None, *, name: str | None = None, timeout_s: float = TIMEOUT_S
) -> Callable[[Callable[..., object]], Tool]: ...


def tool(
    function: Callable[..., object] | None = None,
    *,
    name: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """A tool of an annotated function, plain or `async`. Raises ProgramError for a parameter
    without a type, or with one that JSON does not have.

    >>> @tr.tool(timeout_s=5)
    ... def add(a: int, b: int) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add.spec()["function"]["parameters"]["required"]
    ['a', 'b']
    """
    if function is None:
        return functools.partial(tool, name=name, timeout_s=timeout_s)
    label = name or function.__name__
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ProgramError(f"tool {label}: {error}") from None
    described, by_parameter = read_docstring(inspect.getdoc(function) or "")
    parameters = _parameters(function, label)
    for parameter in parameters:
        if parameter.name not in hints:
            raise ProgramError(f"tool {label}: the parameter {parameter.name!r} needs a type")
    own = {parameter.name: hints[parameter.name] for parameter in parameters}
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    try:
        schema = object_schema(own, required)
    except (SchemaError, RecursionError) as error:  # the latter of a type that holds itself
        raise ProgramError(f"tool {label}: {error}") from None
    for parameter_name, words in by_parameter.items():
        if parameter_name in schema["properties"]:
            schema["properties"][parameter_name].setdefault("description", words)
    return Tool(label, described, schema, function, timeout_s, own)


def _parameters(function: Callable[..., object], label: str) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    for parameter in found:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ProgramError(f"tool {label}: the parameter {parameter} cannot be given by name")
    return found


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph as one line, and what is said of parameters."""
    lines = text.splitlines()
    first: list[str] = []
    for line in lines:
        if not line.strip() or _PARAM.match(line.strip()) or _SECTION.match(line.strip()):
            break
        first.append(line.strip())
    found: dict[str, str] = {}
    _read_section(lines, found)
    for line in lines:
        if match := _PARAM.match(line.strip()):
            found[match[1]] = match[2].strip()
    return " ".join(first), found


def _read_section(lines: list[str], found: dict[str, str]) -> None:
    inside, indent, name = False, 0, ""
    for line in lines:
        words = line.strip()
        if _SECTION.match(words):
            inside, indent, name = True, 0, ""
            continue
        if not inside or not words:
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0 and _ANY_SECTION.match(words):
            inside = False
        elif (match := _ARG.match(words)) and (not indent or depth <= indent):
            indent, name = depth, match[1]
            found[name] = match[2].strip()
        elif name:
            found[name] = f"{found[name]} {words}".strip()


class Tools:
    """The tools of one agent or generation, by name. Raises ProgramError for a name given twice.

    >>> def now() -> str:
    ...     '''The time of day.'''
    ...     return "noon"
    >>> [t.name for t in tr.Tools([now])]
    ['now']
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        self._by_name: dict[str, Tool] = {}
        for each in tools:
            self.add(each)

    def add(self, given: Tool | Callable[..., object]) -> Tool:
        made: Tool = given if isinstance(given, Tool) else tool(given)
        if made.name in self._by_name:
            raise ProgramError(f"there are two tools of the name {made.name!r}")
        self._by_name[made.name] = made
        return made

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def specs(self) -> list[Json]:
        return [each.spec() for each in self]

    async def run(self, call: ToolCall, home: asyncio.AbstractEventLoop | None) -> ToolResult:
        """Never raises for what the model or the tool did wrong. `home`: the loop on which `async`
        tools run; None for the running one."""
        found = self._by_name.get(call.name)
        if found is None:
            known = ", ".join(self._by_name) or "none"
            return ToolResult(f"error: there is no tool {call.name!r}; known: {known}", "unknown")
        try:
            arguments = found.read_arguments(call.arguments)
        except Mismatch as error:
            return _failure(str(error), "arguments")
        except RecursionError as error:
            return _failure(describe(error), "arguments")
        try:
            async with asyncio.timeout(None) as limit:
                value = await _call(found, arguments, home, limit)
        except _FOREIGN as error:  # a tool is foreign code, and the model may know what to do
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            if isinstance(error, TimeoutError) and limit.expired():
                return _failure(f"{call.name} took longer than {found.timeout_s:g} s", "timeout")
            return _failure(describe(error), "exception")
        return as_result(value)


def as_result(value: object) -> ToolResult:
    """Of a tool's value; a failure when it has no text."""
    try:
        return ToolResult(as_content(value))
    except ProgramError as error:
        return _failure(str(error), "exception")


def _failure(words: str, kind: str) -> ToolResult:
    text = f"error: {words}".encode(errors="backslashreplace").decode()
    return ToolResult(text[:MAX_ERROR_CHARS], kind)


def as_content(value: object) -> str:
    """A tool's value as the model reads it: text as it is, the rest as JSON. Raises ProgramError
    for what has no text, as a number of too many digits, or half a character."""
    try:
        text = value if isinstance(value, str) else _written(value)
        text.encode()
    except Exception as error:  # also of foreign code, its __str__
        raise ProgramError(f"a {type(value).__name__} without a text: {describe(error)}") from None
    return text


def _written(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


async def _call(
    found: Tool, arguments: Json, home: asyncio.AbstractEventLoop | None, limit: asyncio.Timeout
) -> object:
    """`limit` is set when the tool begins: waiting for a thread is not the tool's time."""

    def begins() -> None:
        limit.reschedule(asyncio.get_running_loop().time() + found.timeout_s)

    if inspect.iscoroutinefunction(found.function):
        begins()
        return await on_loop(found.function(**arguments), home)
    value = await _slots().run(functools.partial(found.function, **arguments), begins)
    if inspect.isawaitable(value):  # a wrapper that hides a coroutine function
        return await on_loop(value, home)
    return value


async def on_loop(work: Awaitable[object], home: asyncio.AbstractEventLoop | None) -> object:
    """Awaited on `home`, when that is another loop than the running one."""
    if home is None or home is asyncio.get_running_loop() or not inspect.iscoroutine(work):
        return await _contained(work)
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_contained(work), home))


async def _contained(work: Awaitable[object]) -> object:
    """What would end the loop is an error like any other. Only a person's Ctrl-C comes to the main
    thread, and goes on."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and isinstance(error, KeyboardInterrupt):
            raise
        raise RuntimeError(repr(error)) from None


def _is_cancelled() -> bool:
    """Whether the running task is; what its work raises by itself is no such thing."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _slots() -> Slots:
    return _slots_of(asyncio.get_running_loop())


@functools.lru_cache(maxsize=1)
def _slots_of(loop: asyncio.AbstractEventLoop) -> Slots:
    """Tools are started on the background loop only; a forked child has one of its own."""
    return Slots(MAX_THREADS)
