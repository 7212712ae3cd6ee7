"""Tools: what the model is told of functions, and what becomes of a call."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import treadle as tr
from treadle.client.background import LoopThread, background
from treadle.lang import tools
from treadle.lang.threads import Slots
from treadle.lang.tools import ToolCall, ToolResult, Tools, as_content, read_docstring


def convert(value: float, unit: Literal["kg", "lb"] = "kg", *, exact: bool = False) -> str:
    """Convert a weight
    to the other unit.

    Long explanations are not for the model.

    Args:
        value: What is
            to be converted.
        unit (str): Of the value.

    Returns:
        unit: not a parameter.
    """
    if value < 0:
        raise ValueError("weights are positive")
    return f"{value} {unit} {exact}"


def call(name: str, arguments: str) -> ToolCall:
    return ToolCall("c1", name, arguments)


async def run(function, arguments: str = "{}", **options):
    made = tr.tool(**options)(function) if options else tr.tool(function)
    return await Tools([made]).run(call(made.name, arguments), None)


def test_the_schema_comes_from_signature_and_docstring():
    assert tr.tool(convert).spec() == {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Convert a weight to the other unit.",
            "parameters": {
                "type": "object",
                "properties": {
                    "value": {"type": "number", "description": "What is to be converted."},
                    "unit": {
                        "type": "string", "enum": ["kg", "lb"], "description": "Of the value.",
                    },
                    "exact": {"type": "boolean"},
                },
                "required": ["value"],
            },
        },
    }  # fmt: skip


def test_docstrings_of_the_other_style_are_read():
    text = "Do it.\n:param x: the first\n:param int y: the second"
    assert read_docstring(text) == ("Do it.", {"x": "the first", "y": "the second"})
    assert read_docstring("") == ("", {})


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x, "the parameter 'x' needs a type"),
        (lambda *x: x, "cannot be given by name"),
    ],
)
def test_functions_that_cannot_be_told_are_refused(function, words):
    with pytest.raises(tr.ProgramError, match=words):
        tr.tool(function)


def test_a_type_without_a_schema_is_refused():
    def reads(data: bytes) -> str:
        return ""

    with pytest.raises(tr.ProgramError, match="tool reads: .*bytes.* has no JSON schema"):
        tr.tool(reads)


def test_a_name_stands_for_one_tool():
    with pytest.raises(tr.ProgramError, match="two tools of the name 'convert'"):
        Tools([convert, convert])


async def test_arguments_have_the_types_of_the_function():
    result = await run(convert, '{"value": 3, "unit": "lb"}')
    assert (result.content, result.is_error) == ("3.0 lb False", False)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("{oops", "arguments", "error: the arguments are not valid JSON"),
        ("[1]", "arguments", "error: arguments must be an object"),
        ("{}", "arguments", "error: arguments needs the member 'value'"),
        ('{"value": "3"}', "arguments", "arguments.value must be a number, got '3'"),
        ('{"value": 1, "x": 2}', "arguments", "no member 'x'; known are: value, unit, exact"),
        ('{"value": -1}', "exception", "error: ValueError: weights are positive"),
    ],
)
async def test_a_bad_call_is_told_to_the_model(arguments, kind, words):
    result = await run(convert, arguments)
    assert result.error == kind and words in result.content


async def test_an_unknown_name_is_told_with_the_known_ones():
    result = await Tools([convert]).run(call("convrt", "{}"), None)
    assert (result.error, result.content) == (
        "unknown", "error: there is no tool 'convrt'; known: convert",
    )  # fmt: skip


async def test_a_plain_tool_that_never_returns_is_given_up():
    never = threading.Event()

    def stuck() -> str:
        never.wait()
        return ""

    result = await run(stuck, timeout_s=0.02)
    never.set()
    assert (result.error, result.content) == ("timeout", "error: stuck took longer than 0.02 s")


async def test_waiting_for_a_thread_is_not_the_tools_time(monkeypatch: pytest.MonkeyPatch):
    """The clock goes on for longer than the second may take, while the first has the thread."""
    slots, loop = Slots(1), asyncio.get_running_loop()
    monkeypatch.setattr(tools, "_slots", lambda: slots)
    began, gate = asyncio.Event(), threading.Event()

    def other() -> str:
        loop.call_soon_threadsafe(began.set)
        gate.wait()
        return "other"

    first = asyncio.ensure_future(run(other, timeout_s=3600))
    await began.wait()
    second = asyncio.ensure_future(run(lambda: "mine", name="mine", timeout_s=60))
    await asyncio.sleep(0)
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 120)
    done, _ = await asyncio.wait([second], timeout=0.01)
    assert not done  # nor is it given up
    gate.set()
    assert [(await each).content for each in (first, second)] == ["other", "mine"]


async def test_a_coroutine_that_never_returns_is_cancelled():
    ended = []

    async def stuck() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return ""

    result = await run(stuck, timeout_s=0.02)
    assert result.error == "timeout" and ended == [True]


async def test_a_time_limit_of_the_tool_itself_is_its_exception():
    async def own() -> str:
        raise TimeoutError("the database is slow")

    result = await run(own)
    assert (result.error, result.content) == (
        "exception",
        "error: TimeoutError: the database is slow",
    )


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_nothing_that_a_plain_tool_raises_is_lost(error):
    def breaks() -> str:
        raise error

    assert (await run(breaks)).error == "exception"


async def test_plain_tools_run_beside_the_loop_and_coroutines_on_their_own():
    def plain() -> str:
        return threading.current_thread().name

    async def coroutine() -> str:
        return threading.current_thread().name

    assert (await run(plain)).content == "treadle-work"
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever, name="home")
    thread.start()
    result = await Tools([coroutine]).run(call("coroutine", "{}"), other)
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()
    assert result.content == "home"


def test_values_become_texts():
    assert as_content("a") == "a"
    assert as_content({"a": [1, None]}) == '{"a": [1, null]}'
    assert as_content({1, 2}) == "{1, 2}"


def test_arguments_that_are_no_object_do_not_go_back_as_they_are():
    """The server would refuse the whole conversation."""
    assert call("f", '{"a": 1').message_part()["function"]["arguments"] == (
        '{"unparsed": "{\\"a\\": 1"}'
    )
    assert call("f", "").message_part()["function"]["arguments"] == "{}"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Half:
    def __str__(self) -> str:
        return "\ud800"


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [2**20000, nested(100_000), Half(), "\ud800"], ids=["big", "deep", "odd", "half"]
)
async def test_a_value_without_a_text_is_a_failure(value: Any):
    result = await run(lambda: value, name="odd")
    assert result.error == "exception" and "without a text" in result.content
    result.content.encode()


async def fails(error: BaseException) -> str:
    raise error


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), asyncio.CancelledError(), Mute(), ValueError("\ud800"), KeyboardInterrupt()],
    ids=["exit", "cancelled", "mute", "half", "interrupt"],
)
@pytest.mark.parametrize("has_home", [False, True])
def test_nothing_that_a_coroutine_raises_is_lost(error: BaseException, has_home: bool):
    async def breaks() -> str:
        return await fails(error)

    async def asked() -> ToolResult:
        return await Tools([breaks]).run(call("breaks", "{}"), other.loop if has_home else None)

    other = LoopThread()
    result = background().wait(asked())
    other.stop()
    assert result.error == "exception"
    result.content.encode()


@dataclass
class Positive:
    value: float

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("must be above 0")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-1", "ValueError: must be above 0"),
        ("1" + "0" * 4000, "too large for a number"),
        ("1" + "0" * 5000, "not valid JSON"),
        ("[" * 100_000 + "]" * 100_000, "not valid JSON"),
    ],
    ids=["refused", "large", "long", "deep"],
)
async def test_arguments_that_nobody_can_read_are_told(value: str, words: str):
    def weigh(at: Positive) -> str:
        return "heavy"

    text = f'{{"at": {{"value": {value}}}}}'
    result = await run(weigh, text)
    assert result.error == "arguments" and words in result.content
    call("weigh", text).message_part()


@dataclass
class Tree:
    children: list[Tree]


def test_a_type_that_holds_itself_is_refused():
    def prune(tree: Tree) -> str:
        return "pruned"

    with pytest.raises(tr.ProgramError, match="tool prune"):
        tr.tool(prune)
