"""A scheduler and a fake worker joined, shared by the tests of this folder."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from test.fake_model import ROOT, FakeModel, extend, fake_logprob
from test.fakes import FakeWorker
from treadle.srt.cache.grid import is_grid_point, next_point
from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.config import CacheSection, SchedSection
from treadle.srt.grammar.store import GrammarStore
from treadle.srt.messages import (
    GenerateRequest,
    RequestId,
    RequestOutput,
    SamplingParams,
    StepPlan,
    StepResult,
)
from treadle.srt.model_config import LayerKind
from treadle.srt.sched.scheduler import Scheduler

STOP = 7  # the stop id of generated requests


@dataclass(frozen=True)
class Setup:
    """What a test may vary. `windows` window layers lie below one global layer."""

    page_size: int = 4
    num_pages: int = 64
    max_running: int = 4
    warm: int = 0  # slots beyond max_running; with some, rings have two pages more
    windows: int = 0
    window: int = 8
    mode: str = "bounded"
    slope: int = 0
    grid: int = 16  # of canonical requests
    prefix_cache: bool = True
    chunk_tokens: int = 64
    max_queued: int = -1
    policy: str = "fcfs"
    conservativeness: float = 1.0
    overlap: bool = True
    priorities: bool = False
    preempt_gap: int = 10
    context_len: int = 256
    model: FakeModel = field(default_factory=FakeModel)
    grammars: GrammarStore | None = None
    draft_tokens: int = 0


def make_cache(setup: Setup) -> CacheManager:
    kinds = (LayerKind.WINDOW,) * setup.windows + (LayerKind.GLOBAL,)
    window = setup.window if setup.windows else 0
    shape = ReplayShape(setup.mode, setup.slope, 1)
    rule = ReplayRule(kinds, window, shape, setup.page_size, setup.grid)
    slots = setup.max_running + setup.warm + 1
    ring = window + 2 * setup.page_size * bool(setup.warm)
    sizes = setup.num_pages, slots, setup.page_size
    return CacheManager(CacheFacts(*sizes, setup.prefix_cache, "lru", setup.warm, ring), rule)


class Loop:
    """Drives both by hand. `done` has each terminal output, `text` all ids per rid, `now` ticks."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.cache = make_cache(setup)
        facts = self.cache.facts
        sched = SchedSection(
            max_running=setup.max_running,
            max_queued=setup.max_queued,
            chunk_tokens=setup.chunk_tokens,
            policy=setup.policy,
            conservativeness=setup.conservativeness,
            overlap=setup.overlap,
            priorities=setup.priorities,
            preempt_gap=setup.preempt_gap,
            seed=5,
            draft_tokens=setup.draft_tokens,
        )
        section = CacheSection(check_invariants=True)
        self.scheduler = Scheduler(sched, section, self.cache, setup.context_len, setup.grammars)
        self.worker = FakeWorker(
            setup.model,
            setup.page_size,
            facts.num_pages,
            facts.num_slots,
            window=self.cache.rule.window,
            ring_rows=facts.ring_rows + setup.draft_tokens,
            max_rows=setup.chunk_tokens,
            in_tree=self.tree_pages,
            draft_tokens=setup.draft_tokens,
        )
        self.now = 0.0
        self.done: dict[str, RequestOutput] = {}
        self.text: dict[str, list[int]] = {}
        self.scores: dict[str, list[float]] = {}
        self.scored_from: dict[str, int] = {}
        self.plans: list[StepPlan] = []
        self.results: deque[StepResult] = deque()

    def tree_pages(self) -> set[int]:
        return {page for node in self.cache.tree.nodes() for page in node.pages}

    def add(self, rid: str, prompt: Sequence[int], **options: object) -> GenerateRequest:
        """Options are fields of `GenerateRequest` and `SamplingParams`; 8 tokens, seed 1."""
        names = set(SamplingParams.__dataclass_fields__)
        sampling = {"max_new_tokens": 8, "seed": 1, "stop_token_ids": (STOP,)}
        sampling |= {key: value for key, value in options.items() if key in names}
        rest = {key: value for key, value in options.items() if key not in names}
        params = SamplingParams(**sampling)  # type: ignore[arg-type]
        message = GenerateRequest(RequestId(rid), array("i", prompt), params, **rest)  # type: ignore[arg-type]
        if message.logprob_start is not None:
            self.scored_from[rid] = message.logprob_start
        self.scheduler.add(message, self.now)
        self.collect()
        return message

    def plan(self) -> StepPlan | None:
        """One plan, submitted to the worker."""
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        if plan is not None:
            self.plans.append(plan)
            self.check_grid(plan)
            self.worker.submit(plan)
        self.collect()
        return plan

    def check_grid(self, plan: StepPlan) -> None:
        """No span of a canonical request crosses a grid point of its prompt with new rows, and its
        hits are grid points."""
        grids = {r.slot: (r.shape.grid, r.prompt_len) for r in self.scheduler._running}
        for span in plan.spans():
            grid, prompt_len = grids[span.slot]
            point = next_point(grid, max(span.start, span.computed), prompt_len)
            assert point is None or span.end <= point, f"{span} crosses grid point {point}"
        hits = [(reset.slot, reset.hit) for reset in plan.resets]
        for slot, hit in hits + [(rewind.slot, rewind.hit) for rewind in plan.rewinds]:
            grid, prompt_len = grids[slot]
            assert not grid or hit == 0 or is_grid_point(grid, hit, prompt_len)

    def run_worker(self) -> None:
        self.results.append(self.worker.step())

    def commit(self) -> None:
        """The oldest answer, run now if the worker has not yet."""
        if not self.results:
            self.run_worker()
        output = self.scheduler.commit(self.results.popleft(), self.now)
        for prompt in output.prompts:
            found = self.scores.setdefault(prompt.rid, [])
            first = len(found) + max(1, self.scored_from[prompt.rid])
            assert prompt.first == first, "scores come once and in order"
            found.extend(prompt.scores.logprobs)
        self.take(output.outputs)
        self.collect()

    def step(self) -> None:
        """Plan as far ahead as allowed, then commit one step."""
        while self.scheduler.can_plan and self.plan() is not None:
            pass
        if self.scheduler.in_flight:
            self.commit()
        else:
            assert not self.scheduler.has_work, "work waits, nothing runs and nothing is planned"

    def drain(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work and not self.scheduler.in_flight:
                return
            self.step()
        raise AssertionError(f"still running after {limit} steps")

    def collect(self) -> None:
        self.take(self.scheduler.take_events())

    def take(self, outputs: Sequence[RequestOutput]) -> None:
        for output in outputs:
            text = self.text.setdefault(output.rid, [])
            assert output.rid not in self.done, f"{output.rid} goes on after its end"
            text.extend(output.token_ids)
            assert output.usage.completion_tokens == len(text)
            if output.finish is not None:
                self.done[output.rid] = output

    def spans(self, index: int = -1) -> list[tuple[int, int, int, int, int]]:
        return [tuple(span) for span in self.plans[index].spans()]  # type: ignore[misc]

    def counters(self) -> dict[str, float]:
        return self.scheduler.stats()[0]

    def gauges(self) -> dict[str, float]:
        return self.scheduler.stats()[1]


def prompt_logprobs(prompt: Sequence[int], start: int) -> list[float]:
    """What the fake worker has to say of prompt tokens from `start` on."""
    context, found = ROOT, []
    for index, token in enumerate(prompt):
        if index >= max(start, 1):
            found.append(fake_logprob(context, token))
        context = extend(context, token)
    return found


MakeLoop = Callable[..., Loop]


@pytest.fixture
def make_loop() -> MakeLoop:
    def make(**options: object) -> Loop:
        return Loop(Setup(**options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def rng() -> Random:
    return Random(11)
