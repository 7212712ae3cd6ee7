"""Names and seeds of choices."""

from __future__ import annotations

from array import array

from treadle.srt.messages import GenerateRequest, RequestId, SamplingParams
from treadle.srt.tokenizer.jobs import MAX_SEED, PromptJob, name_choices, probe_job
from treadle.srt.tokenizer.trail import TextRules


def job(n: int = 1, rid: str = "", seed: int | None = None) -> PromptJob:
    request = GenerateRequest(RequestId(rid), array("i", [1]), SamplingParams(1, seed=seed))
    return PromptJob(request, TextRules(), n)


def rids(*jobs: PromptJob) -> list[str]:
    return [name.rid for name in name_choices(jobs, "r")]


def test_a_lone_choice_has_the_requests_own_id():
    assert rids(job()) == ["r"]
    assert rids(job(rid="own")) == ["own"]


def test_choices_are_numbered_over_the_request_or_under_their_prompts_id():
    assert rids(job(2)) == ["r-0", "r-1"]
    assert rids(job(2), job(2)) == ["r-0", "r-1", "r-2", "r-3"]
    assert rids(job(2, "a"), job(1, "b")) == ["a-0", "a-1", "b"]


def test_choices_of_a_seed_draw_differently_and_reproducibly():
    seeds = [name.sampling().seed for name in name_choices([job(3, seed=7)], "r")]
    assert seeds == [7, 8, 9]
    top = [name.sampling().seed for name in name_choices([job(2, seed=MAX_SEED)], "r")]
    assert top == [MAX_SEED, 0]
    assert [name.sampling().seed for name in name_choices([job(2)], "r")] == [None, None]


def test_probe_needs_no_vocabulary():
    probe = probe_job(3)
    assert probe.request.prompt_ids.tolist() == [1]
    assert probe.request.sampling.max_new_tokens == 3
