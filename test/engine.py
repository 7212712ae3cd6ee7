"""Scheduler, cache and real worker in one process: requests in, tokens and logprobs out."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from test.loading import HOST, WITH_DEVICE
from treadle.srt.cache.layout import ring_rows
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
from treadle.srt.grammar.store import GrammarStore
from treadle.srt.lifecycle import Ready
from treadle.srt.messages import (
    GenerateRequest,
    RequestId,
    SamplingParams,
    StepPlan,
    TokenOutput,
    Usage,
)
from treadle.srt.model_config import ModelConfig
from treadle.srt.resolve import resolve
from treadle.srt.sched.scheduler import Scheduler
from treadle.srt.scores import PromptScores
from treadle.srt.worker.runner import Runner

ON_CPU = ParallelSection(device="cpu")


@dataclass
class Answer:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    scores: list[PromptScores] = field(default_factory=list)
    usage: Usage | None = None
    reason: str = ""

    @property
    def prompt_logprobs(self) -> list[float]:
        return [x for scores in self.scores for x in scores.logprobs]


def make_cache(config: ServerConfig, facts: ModelConfig, ready: Ready) -> CacheManager:
    cache = config.cache
    sizes = ready.num_pages, ready.num_slots, cache.page_size, True, "lru", cache.warm_windows
    return CacheManager(
        CacheFacts(*sizes, ring_rows(facts, cache)), ReplayRule.from_config(facts, cache)
    )


class Engine:
    """`chunk`: rows of prompt per step. `pages`: cap of the pool, for preemption."""

    def __init__(
        self,
        path: Path,
        *,
        quantization: str = "q8_0",
        mode: str = "bounded",
        slope: int = 0,
        chunk: int = 256,
        pages: int = -1,
        running: int = 4,
        warm: int = 0,
        conservativeness: float = 1.0,
        drafts: int = 0,
        overlap: bool = True,
        grammars: GrammarStore | None = None,
        parallel: ParallelSection = ON_CPU,
        dtype: str = "auto",
    ) -> None:
        facts = load_model_config(path)
        cache = CacheSection(
            memory_bytes=32 << 20, page_size=4, max_total_tokens=-1 if pages < 0 else pages * 4,
            replay_mode=mode, replay_slope=slope, check_invariants=True, warm_windows=warm,
        )  # fmt: skip
        sched = SchedSection(
            max_running=running, chunk_tokens=chunk, seed=1, conservativeness=conservativeness,
            speculation="dspark" if drafts else "none", draft_tokens=drafts or -1,
            overlap=overlap,
        )  # fmt: skip
        model = ModelSection(path=str(path), quantization=quantization, dtype=dtype)
        host = WITH_DEVICE if parallel.device == "cuda" else HOST
        config = resolve(ServerConfig(model, cache, sched, parallel), facts, host)
        self.runner = Runner.load(config, facts, path, lambda done, total, label: None)
        self.cache = make_cache(config, facts, self.runner.capacity(0))
        self.scheduler = Scheduler(
            config.sched, config.cache, self.cache, config.model.context_len, grammars
        )
        self.answers: dict[str, Answer] = {}
        self.plans: deque[StepPlan] = deque()
        self.now = 0.0

    def add(self, rid: str, prompt: Sequence[int], max_new_tokens: int, **fields: object) -> None:
        """Greedy, with logprobs. `fields` are those of `GenerateRequest`, and `sampling`."""
        params = fields.pop("sampling", SamplingParams(max_new_tokens, temperature=0.0))
        assert isinstance(params, SamplingParams)
        message = GenerateRequest(
            RequestId(rid),
            array("i", prompt),
            params,
            **{"top_logprobs": 0} | fields,  # type: ignore[arg-type]
        )
        self.answers[rid] = Answer()
        self.scheduler.add(message, self.now)

    def step(self) -> bool:
        """Plan as far ahead as allowed, execute and commit the oldest. False when nothing runs."""
        self.now += 1.0
        while self.scheduler.can_plan and (plan := self.scheduler.plan(self.now)) is not None:
            self.plans.append(plan)
        if self.plans:
            result = self.runner.execute(self.plans.popleft())
            self.take(self.scheduler.commit(result, self.now))
        self._take(self.scheduler.take_events())
        return self.scheduler.has_work or bool(self.plans)

    def run(self) -> None:
        while self.step():
            pass

    def preempt_all(self) -> None:
        """Answer what is planned, then take slot and pages of all running requests back."""
        while self.plans:
            result = self.runner.execute(self.plans.popleft())
            self._take(self.scheduler.commit(result, self.now).outputs)
        for request in list(self.scheduler._running):
            self.scheduler._preempt(request)

    def answer(self, prompt: Sequence[int], max_new_tokens: int, **fields: object) -> Answer:
        """One request alone, to its end."""
        rid = f"r{len(self.answers)}"
        self.add(rid, prompt, max_new_tokens, **fields)
        self.run()
        return self.answers[rid]

    def take(self, output: TokenOutput) -> None:
        for prompt in output.prompts:
            self.answers[prompt.rid].scores.append(prompt.scores)
        self._take(output.outputs)

    def _take(self, outputs: Sequence[object]) -> None:
        for output in outputs:
            answer = self.answers[output.rid]  # type: ignore[attr-defined]
            assert not answer.reason, "a request ends once"
            answer.token_ids.extend(output.token_ids)  # type: ignore[attr-defined]
            answer.logprobs.extend(x.logprob for x in output.logprobs if x)  # type: ignore[attr-defined]
            answer.usage = output.usage  # type: ignore[attr-defined]
            if output.finish:  # type: ignore[attr-defined]
                answer.reason = output.finish.reason  # type: ignore[attr-defined]
