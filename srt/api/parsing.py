"""/parse_function_call and /separate_reasoning: the parsers on a text of the client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from ..errors import BadRequest, ConfigError
from ..parse.events import Content, Event, Reasoning, ToolArguments, ToolStart
from ..parse.feed import OutputParser
from ..parse.reasoning import ReasoningParser
from ..parse.tools import AUTO, find_dialect, find_reasoning
from .bodies import JsonResponse
from .reading import decode, read_body
from .schema import ParseCallsRequest, SeparateReasoningRequest
from .service import Service
from .tool_use import read_tools

T = TypeVar("T")


class ParsingRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def calls(self, request: Request) -> JsonResponse:
        body = decode(await self._data(request), ParseCallsRequest)
        tools = read_tools(body.tools, None, is_parallel=None)
        dialect = self._service.formats.dialect
        if body.tool_call_parser not in (None, AUTO):
            dialect = self._find(find_dialect, body.tool_call_parser, "tool_call_parser")
        events = _parse(dialect.parser(tools.names), body.text or "")
        calls: list[dict[str, object]] = []
        for event in events:
            if isinstance(event, ToolStart):
                calls.append({"tool_index": event.index, "name": event.name, "parameters": ""})
            elif isinstance(event, ToolArguments):
                calls[event.index]["parameters"] = f"{calls[event.index]['parameters']}{event.text}"
        return JsonResponse({"normal_text": _sum(events, Content), "calls": calls})

    async def reasoning(self, request: Request) -> JsonResponse:
        body = decode(await self._data(request), SeparateReasoningRequest)
        form = self._service.formats.reasoning
        if body.reasoning_parser not in (None, AUTO):
            form = self._find(find_reasoning, body.reasoning_parser, "reasoning_parser")
        if form is None:
            raise BadRequest(
                "reasoning_parser must be given: the server was started without one",
                param="reasoning_parser",
            )
        events = _parse(ReasoningParser(form), body.text or "")
        return JsonResponse(
            {"reasoning_text": _sum(events, Reasoning), "text": _sum(events, Content)}
        )

    async def _data(self, request: Request) -> bytes:
        return await read_body(request, self._service.config.net.max_body_bytes)

    def _find(self, find: Callable[[str, str, str], T], name: str | None, param: str) -> T:
        try:
            return find(name or "", "", "")
        except ConfigError as error:
            _, _, words = error.message.partition(": ")
            raise BadRequest(f"{param}: {words}, got {name!r}", param=param) from None


def _parse(parser: OutputParser, text: str) -> list[Event]:
    return [*parser.push(text), *parser.finish()]


def _sum(events: list[Event], kind: type[Content] | type[Reasoning]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))
