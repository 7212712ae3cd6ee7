"""What the API hands to the frontend: prompts with their options, and how their choices are named.

A prompt with n choices is n requests to the scheduler: the first prefills, the others fork off it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..messages import GenerateRequest, RequestId, SamplingParams
from .trail import TextRules

MAX_SEED = 2**63 - 1
PROBE_ID = 1  # any id of any vocabulary


@dataclass(frozen=True, slots=True)
class PromptJob:
    """`n` choices of one prompt. `request.rid` names the prompt ("" : made from the HTTP
    request's); choices are called `rid-0`, `rid-1`, ... unless the HTTP request has one only.
    """

    request: GenerateRequest
    rules: TextRules
    n: int = 1
    interval: int = 1  # tokens per delta; 0: one delta at the end


@dataclass(frozen=True, slots=True)
class ChoiceName:
    """`ordinal` counts the choices of a prompt; `rid` and `prompt_rid` are the client's names."""

    job: PromptJob
    ordinal: int
    rid: str
    prompt_rid: str

    def sampling(self) -> SamplingParams:
        """Choices of one prompt draw differently from one seed."""
        sampling = self.job.request.sampling
        if sampling.seed is None or self.ordinal == 0:
            return sampling
        return replace(sampling, seed=(sampling.seed + self.ordinal) & MAX_SEED)

    def request(self, wire_rid: RequestId) -> GenerateRequest:
        """In whole answers the first choice scores the prompt for all; a stream cannot wait for it,
        so there each does."""
        request = replace(self.job.request, rid=wire_rid, sampling=self.sampling())
        if self.ordinal and self.job.interval == 0:
            return replace(request, logprob_start=None)
        return request


def name_choices(jobs: Sequence[PromptJob], rid: str) -> tuple[ChoiceName, ...]:
    """All choices of an HTTP request called `rid`, prompt-major."""
    is_single = len(jobs) == 1 and jobs[0].n == 1
    names: list[ChoiceName] = []
    for job in jobs:
        own = job.request.rid
        for i in range(job.n):
            if own:
                name = own if job.n == 1 else f"{own}-{i}"
            else:
                name = rid if is_single else f"{rid}-{len(names)}"
            names.append(ChoiceName(job, i, name, own or rid))
    return tuple(names)


def probe_job(num_tokens: int) -> PromptJob:
    """A request of our own that needs no tokenizer: does the engine answer at all?"""
    sampling = SamplingParams(max_new_tokens=num_tokens, temperature=0.0)
    request = GenerateRequest(RequestId(""), array("i", [PROBE_ID]), sampling)
    return PromptJob(request, TextRules(), interval=0)
