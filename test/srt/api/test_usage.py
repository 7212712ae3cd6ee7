"""Usage of requests with many prompts and choices."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from test.serving import byte_tokenizer
from treadle.srt.api.usage import UsageSum
from treadle.srt.messages import GenerateRequest, RequestId, SamplingParams, Usage
from treadle.srt.tokenizer.choice import Choice, Delta
from treadle.srt.tokenizer.jobs import PromptJob, name_choices
from treadle.srt.tokenizer.trail import TextRules, TextTrail

TOKENIZER = byte_tokenizer()


def make_choices(prompt_lens: list[int], n: int) -> list[Choice]:
    params = SamplingParams(max_new_tokens=9)
    jobs = [
        PromptJob(GenerateRequest(RequestId(""), array("i", [1] * k), params), TextRules(), n)
        for k in prompt_lens
    ]
    return [
        Choice(name, RequestId(name.rid), i, name.job.request,
               TextTrail(TOKENIZER, TextRules(), 0), 0.0)
        for i, name in enumerate(name_choices(jobs, "r"))
    ]  # fmt: skip


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_prompts_count_once_and_outputs_add_up(lens: list[int], n: int, data: st.DataObject):
    total = UsageSum(make_choices(lens, n), has_cache_report=True)
    assert total.total == Usage(sum(lens), 0, 0, 0)
    indexes = [i for i in range(len(lens) * n) for _ in range(2)]
    counts = dict.fromkeys(indexes, 0)
    for index in data.draw(st.permutations(indexes)):
        counts[index] += 1
        usage = Usage(lens[index // n], counts[index], index + 1, index, index)
        total.add(Delta(index, "", (1,), (), usage, None))
    first = [i * n for i in range(len(lens))]
    assert total.total == Usage(
        sum(lens), len(indexes), sum(i + 1 for i in first), sum(first), len(lens) * n - 1
    )  # fmt: skip
    body = total.body()
    assert body["total_tokens"] == sum(lens) + len(indexes)
