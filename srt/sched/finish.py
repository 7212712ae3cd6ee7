"""Rules of finishing: when a sampled token ends a request, and what refusals and aborts say."""

from __future__ import annotations

from ..messages import Finish
from .request import Request

ABORTED = 499  # the client or the caller ended it; nobody reads the status of a closed stream


def after_token(request: Request, token: int) -> Finish | None:
    """Called with `token` already among the known ones.

    A stop id ends the request unless it is one of the first `min_new_tokens` outputs, which the
    sampler keeps free of stop ids.
    """
    if token in request.stop_ids and request.num_output > request.sampling.min_new_tokens:
        return Finish("stop", matched=token)
    if request.len >= request.max_known:
        return Finish("length")
    return None


def by_intent(reason: str) -> Finish:
    """`reason` of an `AbortRequest`: "stop" is a stop string that the tokenizer process saw."""
    if reason == "stop":
        return Finish("stop")
    return Finish("abort", message=f"aborted: {reason}", status=ABORTED)


def not_finite() -> Finish:
    message = "the model produced logits that are not finite; nothing was sampled"
    return Finish("abort", message=message, status=500)


def too_late(limit_s: float, *, was_admitted: bool) -> Finish:
    where = "was not done" if was_admitted else "still waited in the queue"
    message = f"the request {where} after its limit of {limit_s:g} seconds"
    return Finish("abort", message=message, status=503, was_admitted=was_admitted)


def queue_full(num_waiting: int, limit: int) -> Finish:
    message = f"the queue is full: {num_waiting} wait, limit {limit}"
    return Finish("abort", message=message, status=503, was_admitted=False)


def out_of_pages(num_pages: int) -> Finish:
    message = f"the KV pool ({num_pages} pages) is too small for this request to go on"
    return Finish("abort", message=message, status=503)
