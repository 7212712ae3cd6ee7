"""What an Anthropic request says of tools and of thinking, in the terms of a chat."""

from __future__ import annotations

from ..errors import BadRequest
from .anthropic_schema import CountRequest, MessagesTool, MessagesToolChoice, ThinkingParam
from .chat_output import ReasoningWishes
from .chat_reasoning import SWITCHES
from .later import not_supported
from .schema import NamedFunction, NamedTool, Tool, ToolFunction
from .tool_use import ToolUse, read_tools

CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING = ("enabled", "adaptive", "disabled")
DISPLAYS = (None, "summarized", "omitted")


def tool_use(body: CountRequest) -> ToolUse:
    """Raises BadRequest, NotSupported."""
    tools = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(body.tools or ())]
    asked = body.tool_choice
    choice = None if asked is None else _choice(asked, has_tools=bool(tools))
    is_parallel = not (asked is not None and asked.disable_parallel_tool_use)
    try:
        return read_tools(tools, choice, is_parallel=is_parallel)
    except BadRequest as error:
        raise BadRequest(_own_words(error.message), param=error.param) from None


def _tool(tool: MessagesTool, where: str) -> Tool:
    if tool.type not in (None, "custom"):
        raise not_supported(f"{where}.type", f"tools of type {tool.type!r}")
    function = ToolFunction(
        name=tool.name, description=tool.description, parameters=tool.input_schema
    )
    return Tool(type="function", function=function)


def _choice(choice: MessagesToolChoice, *, has_tools: bool) -> str | NamedTool:
    if choice.type not in (*CHOICES, "tool"):
        raise BadRequest(
            f"tool_choice.type must be one of {', '.join((*CHOICES, 'tool'))}, got {choice.type!r}",
            param="tool_choice.type",
        )
    if choice.type in ("any", "tool") and not has_tools:
        raise BadRequest(f"tool_choice {choice.type!r} needs tools", param="tool_choice")
    if choice.type != "tool":
        return CHOICES[choice.type]
    if not choice.name:
        raise BadRequest("tool_choice 'tool' needs a name", param="tool_choice.name")
    return NamedTool(function=NamedFunction(name=choice.name))


def _own_words(message: str) -> str:
    """Paths of a chat request as this dialect spells them."""
    return message.replace(".function.parameters", ".input_schema").replace(
        ".function.name", ".name"
    )


def reasoning_wishes(body: CountRequest) -> ReasoningWishes:
    return ReasoningWishes(is_shown=body.thinking is None or body.thinking.display != "omitted")


def template_variables(body: CountRequest) -> dict[str, object]:
    """For the chat template; without `thinking` it does as it does. Raises BadRequest."""
    variables: dict[str, object] = {}
    if body.output_config is not None and body.output_config.effort is not None:
        variables["reasoning_effort"] = body.output_config.effort
    if body.thinking is not None:
        _check_thinking(body.thinking)
        variables.update(dict.fromkeys(SWITCHES, body.thinking.type != "disabled"))
    return {**variables, **(body.chat_template_kwargs or {})}


def _check_thinking(thinking: ThinkingParam) -> None:
    if thinking.type not in THINKING:
        raise BadRequest(
            f"thinking.type must be one of {', '.join(THINKING)}, got {thinking.type!r}",
            param="thinking.type",
        )
    if thinking.budget_tokens is not None and thinking.budget_tokens < 1:
        raise BadRequest(
            f"thinking.budget_tokens must be at least 1, got {thinking.budget_tokens}",
            param="thinking.budget_tokens",
        )
    if thinking.display not in DISPLAYS:
        raise BadRequest(
            f"thinking.display must be summarized or omitted, got {thinking.display!r}",
            param="thinking.display",
        )
