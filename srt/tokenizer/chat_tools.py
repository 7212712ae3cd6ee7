"""Tools for chat templates that do not know them: said in words, in the format `hermes`.

    tools        -> a text at the end of the system message
    tool_calls   -> <tool_call>{"name": ..., "arguments": {...}}</tool_call> in the content
    role tool    -> a user's message with <tool_response>...</tool_response>

So every chat model can be given tools; how well it uses them is the model's. Answers are read by
the parser `hermes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..plain_json import plain_json

_INTRODUCTION = """\
You can call functions. Each line between the tags describes one as JSON:
<tools>
{tools}
</tools>
To call functions, write for each call a JSON object with the function's name and its arguments:
<tool_call>
{{"name": "<function name>", "arguments": {{<argument name>: <value>}}}}
</tool_call>
The results will be given to you. If no function is needed, answer in plain words."""


def spell_calls(messages: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The same conversation for a template that reads role and content only. Contents are text,
    arguments of calls are objects.
    """
    spelled: list[Mapping[str, object]] = []
    for message in messages:
        role = message["role"]
        if role in ("tool", "function"):
            _append_user(spelled, f"<tool_response>\n{message['content']}\n</tool_response>")
        elif role == "user" and spelled and spelled[-1].get("is_result"):
            _append_user(spelled, str(message["content"]))
        else:
            spelled.append(_with_calls(message) if message.get("tool_calls") else message)
    return [{k: v for k, v in m.items() if k not in ("is_result", "tool_calls")} for m in spelled]


def introduce(
    messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]
) -> list[Mapping[str, object]]:
    """The conversation with the tools in its first message, the system's."""
    text = _INTRODUCTION.format(tools="\n".join(plain_json(tool) for tool in tools))
    first = messages[0]
    if first["role"] not in ("system", "developer"):
        return [{"role": "system", "content": text}, *messages]
    both = f"{first['content']}\n\n{text}" if first["content"] else text
    return [{**first, "content": both}, *messages[1:]]


def _append_user(spelled: list[Mapping[str, object]], text: str) -> None:
    """Results and what the user says to them are one turn: many templates want turns to change."""
    if spelled and spelled[-1].get("is_result"):
        text = f"{spelled.pop()['content']}\n{text}"
    spelled.append({"role": "user", "content": text, "is_result": True})


def _with_calls(message: Mapping[str, object]) -> Mapping[str, object]:
    calls = message["tool_calls"]
    texts = [str(message["content"])] if message["content"] else []
    if isinstance(calls, list):
        for call in calls:
            function = call["function"]
            call = {"name": function["name"], "arguments": function["arguments"]}
            texts.append(f"<tool_call>\n{plain_json(call)}\n</tool_call>")
    return {**message, "content": "\n".join(texts)}
