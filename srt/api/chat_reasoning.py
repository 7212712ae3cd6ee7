"""What a chat request says of reasoning: for the template, and for how it is answered.

Templates switch thinking by one of two variables and read the effort from a third; a request's
`chat_template_kwargs` go before what is derived here.
"""

from __future__ import annotations

import math

from ..errors import BadRequest
from .chat_output import ReasoningWishes
from .schema import ChatRequest

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MAX_EFFORT = 100.0
SWITCHES = ("thinking", "enable_thinking")


def reasoning_wishes(body: ChatRequest) -> ReasoningWishes:
    return ReasoningWishes(
        is_separate=body.separate_reasoning is not False,
        is_streamed=body.stream_reasoning is not False,
        is_shown=body.include_reasoning is not False,
    )


def template_variables(body: ChatRequest) -> dict[str, object]:
    """The request's variables for its chat template. Raises BadRequest."""
    effort = _effort(body)
    is_on = body.reasoning.enabled if body.reasoning else None
    if effort == "none":
        is_on = False
    variables: dict[str, object] = {}
    if effort is not None:
        variables["reasoning_effort"] = effort
    if is_on is not None:
        variables.update(dict.fromkeys(SWITCHES, is_on))
    return {**variables, **(body.chat_template_kwargs or {})}


def _effort(body: ChatRequest) -> str | float | None:
    nested = body.reasoning.effort if body.reasoning else None
    for value, param in ((body.reasoning_effort, "reasoning_effort"), (nested, "reasoning.effort")):
        if isinstance(value, str) and value not in EFFORTS:
            raise BadRequest(
                f"{param} must be one of {', '.join(EFFORTS)} or a number, got {value!r}",
                param=param,
            )
        if isinstance(value, int | float) and not (
            math.isfinite(value) and 0 <= value <= MAX_EFFORT
        ):
            raise BadRequest(
                f"{param} must be at least 0 and at most {MAX_EFFORT:g}, got {value}", param=param
            )
    if None not in (body.reasoning_effort, nested) and body.reasoning_effort != nested:
        raise BadRequest(
            "reasoning_effort and reasoning.effort differ; one is enough", param="reasoning.effort"
        )
    return nested if body.reasoning_effort is None else body.reasoning_effort
