"""Request: legal moves and what usage says."""

from __future__ import annotations

from itertools import product

import pytest

from treadle.srt.errors import InvariantBroken
from treadle.srt.messages import RequestId, Usage
from treadle.srt.sched.request import MOVES, RequestState

from .conftest import MakeLoop


@pytest.mark.parametrize("move", list(product(RequestState, RequestState)))
def test_only_listed_moves_are_possible(
    make_loop: MakeLoop, move: tuple[RequestState, RequestState]
):
    loop = make_loop()
    loop.add("a", range(6))
    request = loop.scheduler._requests[RequestId("a")]
    before, after = move
    request.state = before
    if move in MOVES:
        request.move(after)
        assert request.state is after
        return
    with pytest.raises(InvariantBroken, match=f"{before} -> {after}"):
        request.move(after)
    assert request.state is before


def test_usage_counts_sampled_tokens(make_loop: MakeLoop):
    loop = make_loop()
    loop.add("a", range(6))
    request = loop.scheduler._requests[RequestId("a")]
    request.tokens.extend((4, 5))
    request.cached, request.replayed = 4, 2
    assert request.usage() == Usage(6, 2, 4, 2)
    assert (request.len, request.num_output) == (8, 2)


def test_the_prompt_of_the_message_stays_as_it_is(make_loop: MakeLoop):
    loop = make_loop()
    sent = loop.add("a", range(6))
    loop.drain()
    assert list(sent.prompt_ids) == list(range(6))
