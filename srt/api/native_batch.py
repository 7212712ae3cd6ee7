"""The batch form of /generate: every field is one value for all prompts, or a list as long.

Owns reading that form into one row per prompt. Messages name the field and both lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

from ..errors import BadRequest
from .generating import check_outputs
from .later import not_supported
from .sampling import top_logprobs
from .schema import GenerateBody, SamplingFields

T = TypeVar("T")

INPUTS = "exactly one of text, input_ids and input_embeds"


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt; `path` is where it stands in the body. `rid` "" is made from the request's."""

    text: str | None
    ids: list[int] | None
    path: str
    sampling: SamplingFields
    rid: str
    extra_key: str | None
    top_logprobs: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    rows: list[Row]
    is_list: bool  # answered by a JSON array even when it has one prompt


def read_batch(body: GenerateBody) -> Batch:
    """Raises BadRequest, NotSupported."""
    prompts, is_list = _prompts(body)
    size = len(prompts)
    check_outputs(size, "input_ids" if body.text is None else "text")
    samplings = _spread(body.sampling_params, size, "sampling_params")
    rids: list[str | None] = [None] * size
    if isinstance(body.rid, list):
        rids = _spread(body.rid, size, "rid")
    keys = _spread(body.extra_key, size, "extra_key")
    wants = _spread(body.return_logprob, size, "return_logprob")
    tops = _spread(body.top_logprobs_num, size, "top_logprobs_num")
    for start in _spread(body.logprob_start_len, size, "logprob_start_len"):
        _check_start(start)
    rows = []
    for i, (text, ids, path) in enumerate(prompts):
        top = top_logprobs(tops[i], "top_logprobs_num")
        rows.append(
            Row(
                text,
                ids,
                path,
                samplings[i] or SamplingFields(),
                rids[i] or "",
                keys[i],
                (top or 0) if wants[i] else None,
            )
        )
    return Batch(rows, is_list)


def _prompts(body: GenerateBody) -> tuple[list[tuple[str | None, list[int] | None, str]], bool]:
    given = [x for x in (body.text, body.input_ids, body.input_embeds) if x is not None]
    if len(given) != 1:
        raise BadRequest(f"{INPUTS} must be given, got {len(given)} of them", param="text")
    if body.input_embeds is not None:
        raise not_supported("input_embeds")
    if isinstance(body.text, str):
        return [(body.text, None, "text")], False
    if body.text is not None:
        _check_filled(body.text, "text")
        return [(text, None, f"text[{i}]") for i, text in enumerate(body.text)], True
    items = body.input_ids or []
    _check_filled(items, "input_ids")
    if all(isinstance(item, int) for item in items):
        return [(None, cast(list[int], items), "input_ids")], False
    rows: list[tuple[str | None, list[int] | None, str]] = []
    for i, item in enumerate(items):
        if not isinstance(item, list):
            raise BadRequest("input_ids mixes ids with lists of ids", param=f"input_ids[{i}]")
        rows.append((None, item, f"input_ids[{i}]"))
    return rows, True


def _check_filled(items: list[T], name: str) -> None:
    if not items:
        raise BadRequest(f"{name} must not be empty", param=name)


def _check_start(start: int | None) -> None:
    if start is not None and start < -1:
        raise BadRequest(
            f"logprob_start_len must be -1 (output only), got {start}", param="logprob_start_len"
        )
    if start is not None and start >= 0:
        raise not_supported("logprob_start_len", "logprobs of the prompt")


def _spread(value: T | list[T] | None, size: int, name: str) -> list[T | None]:
    if not isinstance(value, list):
        return [value] * size
    if len(value) != size:
        raise BadRequest(
            f"{name} has {len(value)} entries, but there are {size} prompts", param=name
        )
    return list(value)
