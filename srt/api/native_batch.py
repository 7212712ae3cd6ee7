"""The batch form of /generate: every field is one value for all prompts, or a list as long.

Owns reading that form into one row per prompt. Messages name the field and both lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

from ..errors import BadRequest
from .generating import check_outputs
from .later import not_supported
from .sampling import MAX_NATIVE_TOP, top_logprobs
from .schema import GenerateBody, SamplingFields
from .scoring import check_start

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
    logprob_start: int | None
    logprob_ids: list[int]


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
    starts = _spread(body.logprob_start_len, size, "logprob_start_len")
    chosen = _logprob_ids(body.token_ids_logprob, size)
    rows = []
    for i, (text, ids, path) in enumerate(prompts):
        top = top_logprobs(tops[i], "top_logprobs_num", MAX_NATIVE_TOP)
        start = check_start(starts[i])
        rows.append(
            Row(
                text,
                ids,
                path,
                samplings[i] or SamplingFields(),
                rids[i] or "",
                keys[i],
                (top or 0) if wants[i] else None,
                start if wants[i] else None,
                chosen[i] if wants[i] else [],
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


def _logprob_ids(asked: list[int | list[int]] | None, size: int) -> list[list[int]]:
    """One list of ids for all prompts, or a list of lists."""
    items = asked or []
    if all(isinstance(item, int) for item in items):
        return [cast(list[int], items)] * size
    if not all(isinstance(item, list) for item in items):
        raise BadRequest("token_ids_logprob mixes ids with lists of ids", param="token_ids_logprob")
    rows: list[list[int] | None] = _spread(
        cast("list[list[int]]", items), size, "token_ids_logprob"
    )
    return [ids or [] for ids in rows]


def _spread(value: T | list[T] | None, size: int, name: str) -> list[T | None]:
    if not isinstance(value, list):
        return [value] * size
    if len(value) != size:
        raise BadRequest(
            f"{name} has {len(value)} entries, but there are {size} prompts", param=name
        )
    return list(value)
