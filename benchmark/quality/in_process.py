"""Scheduler, cache and worker in this process, without sockets: requests in, answers out.

The parts are those of a server and see the same plans. One request runs at a time; each may have
its own number of rows per step, because results must not depend on it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import (
    CacheSection,
    ModelSection,
    ParallelSection,
    SchedSection,
    ServerConfig,
)
from treadle.srt.host import read_host_facts
from treadle.srt.messages import (
    GenerateRequest,
    RequestId,
    RequestOutput,
    SamplingParams,
    StepPlan,
    TokenOutput,
    Usage,
)
from treadle.srt.resolve import resolve
from treadle.srt.sched.scheduler import Scheduler
from treadle.srt.worker.runner import Runner

KV_BYTES = 1 << 30
SLOTS = 2


@dataclass(slots=True)
class Answer:
    """Greedy output ids, their logprobs, and those of the prompt tokens that were asked for."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    usage: Usage | None = None


class InProcess:
    def __init__(
        self, path: Path, *, quantization: str, mode: str, threads: int, override: str = "{}"
    ) -> None:
        """`mode`: replay mode of all requests. `override`: JSON merged into the model's config.
        Raises what a server raises at start."""
        torch.set_num_threads(threads)
        model = load_model_config(path, override)
        config = ServerConfig(
            model=ModelSection(path=str(path), quantization=quantization, override_args=override),
            cache=CacheSection(memory_bytes=KV_BYTES, replay_mode=mode),
            sched=SchedSection(max_running=SLOTS, seed=1),
            parallel=ParallelSection(num_threads=threads),
        )
        self._config = resolve(config, model, read_host_facts())
        self._runner = Runner.load(self._config, model, path, lambda done, total, label: None)
        ready, cache = self._runner.capacity(0), self._config.cache
        facts = CacheFacts(ready.num_pages, ready.num_slots, cache.page_size, True, "lru")
        self._cache = CacheManager(facts, ReplayRule.from_config(model, cache))

    @property
    def page_size(self) -> int:
        return self._config.cache.page_size

    @property
    def grid(self) -> int:
        """Of canonical requests, in tokens."""
        return self._config.cache.canonical_grid

    @property
    def longest_replay(self) -> int:
        """Rows that the lowest layer replays after a long hit."""
        return self._cache.rule.longest_run(self._cache.rule.default)

    def forget(self, keep_tokens: int = 0) -> None:
        """Evict all cached tokens but the first `keep_tokens` of the one text that is cached."""
        pages = self._cache.tree.evictable_pages
        self._cache.evict(max(0, pages - keep_tokens // self.page_size))

    def answer(
        self, prompt: Sequence[int], new_tokens: int, logprob_start: int, chunk_tokens: int
    ) -> Answer:
        """One request, to its end; end of text is ignored."""
        sched = replace(self._config.sched, chunk_tokens=chunk_tokens)
        context_len = self._config.model.context_len
        scheduler = Scheduler(sched, self._config.cache, self._cache, context_len)
        scheduler.add(
            GenerateRequest(
                RequestId("r"),
                array("i", prompt),
                SamplingParams(new_tokens, temperature=0.0),
                top_logprobs=0,
                logprob_start=logprob_start,
            ),
            now=0.0,
        )
        answer = Answer()
        plans: deque[StepPlan] = deque()
        while scheduler.has_work or plans:
            while scheduler.can_plan and (plan := scheduler.plan(0.0)) is not None:
                plans.append(plan)
            if plans:
                result = self._runner.execute(plans.popleft())
                _take(answer, scheduler.commit(result, 0.0))
            _check(scheduler.take_events())
        return answer


def _take(answer: Answer, output: TokenOutput) -> None:
    for part in output.prompts:
        answer.prompt_logprobs.extend(part.scores.logprobs)
    for one in output.outputs:
        answer.token_ids.extend(one.token_ids)
        answer.logprobs.extend(x.logprob for x in one.logprobs if x is not None)
        answer.usage = one.usage
    _check(output.outputs)


def _check(outputs: Sequence[RequestOutput]) -> None:
    """Raises: RuntimeError for a request that was refused or aborted."""
    for output in outputs:
        if output.finish is not None and output.finish.reason == "abort":
            raise RuntimeError(output.finish.message)
