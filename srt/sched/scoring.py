"""Requests that want logprobs of prompt tokens: which are wanted, how they hit, what is answered.

The logprob of token j is read from row j - 1, which must be run and not replayed (B26, B27): up to
there such a request takes hits, beyond it none. What it computes is published as ever (B28). Rows
after a bounded replay are an approximation, and scores are for comparing: unless the request asks
for it, its replay is exact.
"""

from __future__ import annotations

from dataclasses import replace

from ..cache.replay import ReplayRule, ReplayShape
from ..errors import InvariantBroken
from ..messages import GenerateRequest, PromptOutput, StepResult
from .plan import StepRecord
from .request import RequestState


def first_to_score(message: GenerateRequest) -> int:
    """Index of the first prompt token that gets a logprob: the one at 0 has none. The prompt's
    length when none is wanted."""
    if message.logprob_start is None:
        return len(message.prompt_ids)
    return min(max(message.logprob_start, 1), len(message.prompt_ids))


def scoring_shape(message: GenerateRequest, rule: ReplayRule) -> ReplayShape:
    """The replay shape of a request. Raises: BadRequest."""
    mode = message.replay_mode
    if mode is None and message.logprob_start is not None and rule.default.mode == "bounded":
        mode = "exact"
    shape = rule.shape(mode, message.replay_slope)
    # A score is read from each row of the prompt, so none is left out.
    return shape if message.logprob_start is None else replace(shape, trims=False)


def answered_scores(record: StepRecord, result: StepResult) -> tuple[PromptOutput, ...]:
    """What a finished step says of prompts, of requests that still run. Raises: InvariantBroken."""
    if len(record.scores) != len(result.scores):
        raise InvariantBroken(f"step {record.step}: {len(result.scores)} scores are answered")
    return tuple(
        PromptOutput(planned.request.rid, planned.first, scores)
        for planned, scores in zip(record.scores, result.scores, strict=True)
        if planned.request.state is RequestState.RUNNING
    )
