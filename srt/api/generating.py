"""The part that all generating routes share: a checked request -> a running generation.

Owns the cache scope and session of a request, and the watch for a client that leaves before its
answer is complete: the generation is closed then, which frees what the engine holds for it.
"""

from __future__ import annotations

import asyncio
import uuid
from array import array
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

from starlette.requests import Request

from ..config import REPLAY_MODES
from ..errors import Aborted, BadRequest
from ..messages import GenerateRequest, RequestId
from ..net.sse import wait_disconnect
from ..tokenizer.jobs import PromptJob
from .isolation import owner_fields
from .sampling import Sampling
from .schema import CacheFields
from .service import Service

T = TypeVar("T")

MAX_REPLAY_SLOPE = 1 << 20
MAX_PRIORITY = 1 << 31
MAX_DEADLINE_S = 1e6
MAX_NAME_CHARS = 512
MAX_OUTPUTS = 4096  # of one HTTP request
SESSION_HEADERS = (
    "x-correlation-id",
    "x-session-id",
    "x-session-affinity",
    "x-smg-routing-key",
    "x-dynamo-session-id",
    "x-dynamo-parent-session-id",
)


RID_HEADER = "x-rid"  # names the request where the body, which a router does not touch, has no rid


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything of a request but its prompt and sampling."""

    namespace: tuple[tuple[str, str], ...]
    session: str | None
    replay_mode: str | None
    replay_slope: int | None
    priority: int = 0
    deadline_s: float | None = None


def read_scope(fields: CacheFields, request: Request, extra_key: str | None) -> Scope:
    """Raises BadRequest."""
    mode, slope = fields.swa_replay, fields.swa_replay_slope
    if mode is not None and mode not in REPLAY_MODES:
        raise BadRequest(
            f"swa_replay must be one of {', '.join(REPLAY_MODES)}, got {mode!r}", param="swa_replay"
        )
    if slope is not None and not 0 <= slope <= MAX_REPLAY_SLOPE:
        raise BadRequest(
            f"swa_replay_slope must be at least 0 and at most {MAX_REPLAY_SLOPE}, got {slope}",
            param="swa_replay_slope",
        )
    scope = (("salt", fields.cache_salt), ("extra", extra_key))
    return Scope(
        owner_fields(request) + tuple((kind, value) for kind, value in scope if value),
        _session(fields.session_id, request),
        mode,
        slope,
        _priority(fields.priority),
        _deadline(fields.deadline_s),
    )


def _priority(asked: int | None) -> int:
    if asked is not None and not -MAX_PRIORITY <= asked <= MAX_PRIORITY:
        raise BadRequest(
            f"priority must be at least {-MAX_PRIORITY} and at most {MAX_PRIORITY}, got {asked}",
            param="priority",
        )
    return asked or 0


def _deadline(asked: float | None) -> float | None:
    if asked is not None and not 0 < asked <= MAX_DEADLINE_S:
        raise BadRequest(
            f"deadline_s must be above 0 and at most {MAX_DEADLINE_S:g}, got {asked}",
            param="deadline_s",
        )
    return asked


def _session(asked: str | None, request: Request) -> str | None:
    if asked:
        return asked
    for name in SESSION_HEADERS:
        value = request.headers.get(name)
        if value:
            return value
    return None


def new_rid(asked: str | None, request: Request, prefix: str = "") -> str:
    """The client's id, one that a router in front has given, or a fresh one that starts with
    `prefix`. Raises BadRequest for one that is absurdly long.
    """
    asked = asked or request.headers.get(RID_HEADER)
    if not asked:
        return prefix + uuid.uuid4().hex
    if len(asked) > MAX_NAME_CHARS:
        raise BadRequest(f"rid is longer than {MAX_NAME_CHARS} characters", param="rid")
    return asked


@dataclass(frozen=True, slots=True)
class JobOptions:
    sampling: Sampling
    scope: Scope
    top_logprobs: int | None
    is_streaming: bool
    logprob_start: int | None = None  # first prompt token with a logprob; None: output only
    logprob_ids: tuple[int, ...] = ()


def make_job(
    service: Service, prompt_ids: array[int], options: JobOptions, rid: str = ""
) -> PromptJob:
    """Raises TooLong when prompt and output do not fit the context."""
    sampling, scope = options.sampling, options.scope
    cap = service.limits.output_tokens(len(prompt_ids), sampling.cap)
    api = service.config.api
    limits = [s for s in (_limit(api.request_timeout_s), scope.deadline_s) if s is not None]
    floor = min(sampling.params.min_new_tokens, cap)
    request = GenerateRequest(
        rid=RequestId(rid),
        prompt_ids=prompt_ids,
        sampling=replace(sampling.params, max_new_tokens=cap, min_new_tokens=floor),
        namespace=scope.namespace,
        session=scope.session,
        replay_mode=scope.replay_mode,
        replay_slope=scope.replay_slope,
        top_logprobs=options.top_logprobs,
        priority=scope.priority,
        queue_timeout_s=_limit(api.queue_timeout_s),
        timeout_s=min(limits) if limits else None,
        logprob_start=options.logprob_start,
        logprob_ids=array("i", options.logprob_ids),
    )
    interval = 0
    if options.is_streaming:
        interval = sampling.stream_interval or service.config.net.stream_interval
    return PromptJob(request, sampling.rules, sampling.n, interval)


def _limit(seconds: float) -> float | None:
    return None if seconds < 0 else seconds


def check_outputs(total: int, param: str) -> None:
    """One HTTP request must not fill the table alone; asked before work is spent on its prompts.
    Raises BadRequest.
    """
    if total > MAX_OUTPUTS:
        raise BadRequest(
            f"the request asks for {total} outputs, at most {MAX_OUTPUTS}", param=param
        )


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client leaves. Raises Aborted then."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.create_task(wait_disconnect(request.receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Aborted("the client left before its answer was complete")
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)
