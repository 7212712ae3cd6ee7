"""The tools of a request, checked: which there are, and which calls the answer may hold.

Shared by the routes whose requests carry tools; each converts its own spelling to `Tool`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import BadRequest
from .schema import NamedTool, Tool

MAX_TOOLS = 1024
_NAME = re.compile(r"[^\s\"'<>{}()\[\]]{1,256}")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`tools` are shown to the model. `choice` is "none", "auto" or "required"; with `named` that
    tool is the only one that may, and must, be called. `max_calls` None: any number.
    """

    tools: tuple[Tool, ...] = ()
    choice: str = "none"
    named: str | None = None
    max_calls: int | None = None

    @property
    def is_parsed(self) -> bool:
        """The answer is searched for calls."""
        return bool(self.tools) and self.choice != "none"

    @property
    def is_forced(self) -> bool:
        return self.choice == "required"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.tools)

    def for_template(self) -> list[dict[str, object]]:
        """As templates read them: what the client sent, in the usual order of keys."""
        if self.choice == "none":
            return []
        return [_plain(tool) for tool in self.tools]


def read_tools(
    tools: Sequence[Tool] | None, choice: str | NamedTool | None, *, is_parallel: bool | None
) -> ToolUse:
    """`tool_choice` null means auto with tools, none without. Raises BadRequest."""
    tools = tuple(tools or ())
    _check_tools(tools)
    named = choice.function.name if isinstance(choice, NamedTool) else None
    if named is not None and named not in {tool.function.name for tool in tools}:
        raise BadRequest(
            f"tool_choice names {named!r}, which is not among tools", param="tool_choice"
        )
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise BadRequest(
            f"tool_choice must be none, auto, required or a named function, got {choice!r}",
            param="tool_choice",
        )
    if choice == "required" and not tools:
        raise BadRequest("tool_choice 'required' needs tools", param="tool_choice")
    if not tools:
        return ToolUse()
    return ToolUse(
        tools,
        "required" if named else (choice if isinstance(choice, str) else "auto"),
        named,
        1 if is_parallel is False or named else None,
    )


def _check_tools(tools: Sequence[Tool]) -> None:
    if len(tools) > MAX_TOOLS:
        raise BadRequest(f"tools has {len(tools)} entries, at most {MAX_TOOLS}", param="tools")
    seen: set[str] = set()
    for i, tool in enumerate(tools):
        where, name = f"tools[{i}]", tool.function.name
        if tool.type not in (None, "function"):
            raise BadRequest(
                f"{where}.type must be 'function', got {tool.type!r}", param=f"{where}.type"
            )
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"{where}.function.name must be 1 to 256 characters without spaces, quotes and "
                f"brackets, got {name[:300]!r}",
                param=f"{where}.function.name",
            )
        if name in seen:
            raise BadRequest(
                f"{where}.function.name is {name!r}, as that of an earlier tool",
                param=f"{where}.function.name",
            )
        seen.add(name)
        _check_schema(tool.function.parameters, f"{where}.function.parameters")


def _check_schema(schema: Mapping[str, object] | None, where: str) -> None:
    """What templates and clients rely on; what a schema means is the grammar's to judge."""
    if not schema:
        return
    kind = schema.get("type", "object")
    if kind != "object":
        raise BadRequest(f"{where}.type must be 'object', got {kind!r}", param=f"{where}.type")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise BadRequest(f"{where}.properties must be an object", param=f"{where}.properties")
    for name, value in properties.items():
        if not isinstance(value, Mapping | bool):
            path = f"{where}.properties.{name}"
            raise BadRequest(f"{path} must be a schema, got {value!r}", param=path)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise BadRequest(f"{where}.required must be a list of names", param=f"{where}.required")


def _plain(tool: Tool) -> dict[str, object]:
    function: dict[str, object] = msgspec.to_builtins(tool.function)
    return {
        "type": "function",
        "function": {key: value for key, value in function.items() if value is not None},
    }
