"""The log of a prompt's scores: order, the token without one, what belongs to which row."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from treadle.srt.errors import InvariantBroken
from treadle.srt.messages import (
    GenerateRequest,
    PromptOutput,
    RequestId,
    SamplingParams,
    TokenLogprob,
)
from treadle.srt.scores import PromptScores
from treadle.srt.tokenizer.scores import PromptLog


def make_log(start: int, *, top: int | None = None, ids: int = 0) -> PromptLog:
    request = GenerateRequest(
        RequestId("a"), array("i", [10, 11, 12, 13]), SamplingParams(1), top_logprobs=top,
        logprob_start=start, logprob_ids=array("i", range(ids)),
    )  # fmt: skip
    return PromptLog.of(request)


def part(first: int, logprobs: list[float]) -> PromptOutput:
    ranks = array("i", range(1, len(logprobs) + 1))
    return PromptOutput(RequestId("a"), first, PromptScores(array("d", logprobs), ranks))


def test_parts_are_one_list_and_the_first_token_has_no_logprob():
    log = make_log(0)
    log.add(part(1, [-1.0]))
    log.add(part(2, [-2.0, -3.0]))
    tokens = list(log.tokens)
    assert [token.token_id for token in tokens] == [10, 11, 12, 13]
    assert tokens[0][1:] == (None, None)
    assert [t.found.logprob for t in tokens if t.found] == [-1.0, -2.0, -3.0]
    assert [t.rank for t in tokens] == [None, 1, 1, 2]


def test_a_log_from_the_middle_has_no_null():
    log = make_log(2)
    log.add(part(2, [-2.0, -3.0]))
    assert [(t.token_id, t.found) for t in log.tokens] == [
        (12, TokenLogprob(-2.0)),
        (13, TokenLogprob(-3.0)),
    ]


def test_best_and_asked_tokens_go_with_their_row():
    log = make_log(2, top=2, ids=1)
    scores = replace(
        part(2, [-2.0, -3.0]).scores,
        top_ids=array("i", [5, 6, 7, 8]),
        top_logprobs=array("d", [-0.1, -0.2, -0.3, -0.4]),
        chosen=array("d", [-8.0, -9.0]),
    )
    log.add(PromptOutput(RequestId("a"), 2, scores))
    found = [token.found for token in log.tokens]
    assert found[0] == TokenLogprob(-2.0, (5, 6), (-0.1, -0.2), (-8.0,))
    assert found[1] == TokenLogprob(-3.0, (7, 8), (-0.3, -0.4), (-9.0,))


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_gap_or_a_repetition_is_found(first: int):
    """T43: none twice."""
    log = make_log(0)
    log.add(part(1, [-1.0]))
    with pytest.raises(InvariantBroken):
        log.add(part(first, [-2.0]))
