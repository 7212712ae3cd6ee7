"""What is refused at start and at arrival, and that the message names value and limit."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.manager import CacheFacts
from treadle.srt.errors import BadRequest, ConfigError, TooLong
from treadle.srt.messages import GenerateRequest, RequestId, SamplingParams
from treadle.srt.sched.limits import check_request, max_known

from .conftest import MakeLoop

FACTS = CacheFacts(num_pages=11, num_slots=3, page_size=4, prefix_cache=True, eviction_policy="lru")


def message(prompt: int, output: int) -> GenerateRequest:
    sampling = SamplingParams(max_new_tokens=output)
    return GenerateRequest(RequestId("a"), array("i", range(prompt)), sampling)


@pytest.mark.parametrize(
    ("prompt", "output"),
    [(36, 100), (39, 2), (40, 1), (40, 0)],  # T45: a page more, or all that is ever needed
)
def test_prompts_that_fit_the_pool_are_taken(prompt: int, output: int):
    check_request(message(prompt, output), 100, FACTS)


@pytest.mark.parametrize(("prompt", "output"), [(37, 100), (41, 0), (40, 2)])
def test_prompts_that_never_fit_the_pool_are_refused(prompt: int, output: int):
    with pytest.raises(BadRequest, match=f"{prompt} tokens needs 11 pages .* has 10"):  # T45
        check_request(message(prompt, output), 100, FACTS)


@pytest.mark.parametrize(("prompt", "output"), [(21, 0), (20, 1)])
def test_prompts_beyond_the_context_are_refused(prompt: int, output: int):
    with pytest.raises(TooLong, match="context length of 20"):
        check_request(message(prompt, output), 20, FACTS)


def test_empty_prompts_and_negative_lengths_are_refused():
    with pytest.raises(BadRequest, match="no tokens"):
        check_request(message(0, 1), 20, FACTS)
    with pytest.raises(BadRequest, match="max_new_tokens -1"):
        check_request(message(3, -1), 20, FACTS)


def test_output_is_capped_by_the_context():
    assert max_known(message(10, 5), 20) == 15
    assert max_known(message(10, 50), 20) == 20


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy": "best"}, "policy 'best'"),
        ({"conservativeness": 0.0}, "conservativeness 0.0"),
        ({"num_pages": 2}, "2 pages"),
        ({"max_running": 5, "chunk_tokens": 7}, "--chunked-prefill-size 7: must be at least 8"),
        (
            {"windows": 2, "chunk_tokens": 11},
            "--chunked-prefill-size 11: must be at least 12",
        ),  # B14
    ],
)
def test_settings_under_which_a_request_could_hang_are_refused(
    make_loop: MakeLoop, options: dict[str, object], text: str
):
    with pytest.raises(ConfigError, match=text):
        make_loop(**options)
