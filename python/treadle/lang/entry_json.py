"""Entries of a run as JSON, and back: the one place that knows the form of a trace's requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from .backend import Answer, AnswerRequest, ScoreRequest, Scores
from .choices import ChoiceScore
from .ir import Logprobs
from .prompt import ChatPrompt, TextPrompt, read_prompt
from .recorder import Asked, Entry, Told
from .sampling import Sampling
from .tools import ToolCall, ToolResult

Json = dict[str, Any]


def entry_json(entry: Entry) -> Json:
    found: Json = {
        "kind": entry.kind,
        "branch": entry.branch,
        "name": entry.name,
        "start_s": round(entry.start_s, 6),
        "end_s": None if entry.end_s is None else round(entry.end_s, 6),
        "asked": asked_json(entry.asked),
        "told": None if entry.told is None else told_json(entry.told),
    }
    if entry.error:
        found["error"] = entry.error
    if entry.is_recalled:
        found["is_recalled"] = True
    return found


def read_entry(found: Json) -> Entry:
    told = found["told"]
    return Entry(
        found["kind"],
        found["branch"],
        found["name"],
        _ASKED[found["kind"]](found["asked"]),
        found["start_s"],
        found["end_s"],
        None if told is None else _TOLD[found["kind"]](told),
        found.get("error", ""),
        found.get("is_recalled", False),
    )


def asked_json(asked: Asked) -> Json:
    if isinstance(asked, AnswerRequest):
        form: Json = {"prompt": asked.prompt.as_json(), "sampling": asked.sampling.given()}
        if asked.logprobs is not None:
            form["logprobs"] = dataclasses.asdict(asked.logprobs)
        if asked.tool_choice is not None:
            form["tool_choice"] = asked.tool_choice
        return form
    if isinstance(asked, ScoreRequest):
        return {
            "bases": [prompt.as_json() for prompt in asked.bases],
            "prompts": [prompt.as_json() for prompt in asked.prompts],
            "needs_unconditional": asked.needs_unconditional,
        }
    if isinstance(asked, TextPrompt | ChatPrompt):
        return {"prompt": asked.as_json()}
    return dataclasses.asdict(asked)


def told_json(told: Told) -> Any:
    if isinstance(told, Mapping):
        return dict(told)
    if isinstance(told, Scores | ToolResult):
        return dataclasses.asdict(told)
    return [dataclasses.asdict(answer) for answer in told]


def _read_answer_request(found: Json) -> AnswerRequest:
    logprobs = found.get("logprobs")
    return AnswerRequest(
        read_prompt(found["prompt"]),
        Sampling(**found["sampling"]),
        None if logprobs is None else Logprobs(**logprobs),
        found.get("tool_choice"),
    )


def _read_score_request(found: Json) -> ScoreRequest:
    return ScoreRequest(
        tuple(map(read_prompt, found["bases"])),
        tuple(map(read_prompt, found["prompts"])),
        found["needs_unconditional"],
    )


def _read_answers(found: Sequence[Json]) -> list[Answer]:
    return [
        Answer(
            each["text"],
            each["reasoning"],
            tuple(ToolCall(**call) for call in each["calls"]),
            each["meta"],
        )
        for each in found
    ]


def _read_scores(found: Json) -> Scores:
    choices = (
        ChoiceScore(**{key: tuple(values) for key, values in each.items()})
        for each in found["choices"]
    )
    return Scores(tuple(choices), found["meta"])


_ASKED: dict[str, Any] = {
    "generate": _read_answer_request,
    "select": _read_score_request,
    "commit": lambda found: read_prompt(found["prompt"]),
    "tool": lambda found: ToolCall(**found),
}
_TOLD: dict[str, Any] = {
    "generate": _read_answers,
    "select": _read_scores,
    "commit": dict,
    "tool": lambda found: ToolResult(**found),
}
