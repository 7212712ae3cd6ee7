"""Random load on the scheduler with a fake worker: 10^4 arrivals, aborts, tiny pools, flushes.

After every step: conservation of pages and slots. For every request: one terminal output, and the
text it would have had alone. Whenever nothing is planned, nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from test.fake_model import FakeModel
from treadle.srt.cache.node import Namespace
from treadle.srt.messages import AbortRequest, GenerateRequest, RequestId, RequestOutput
from treadle.srt.sched import estimate

from .conftest import STOP, Loop, Setup, prompt_logprobs

ARRIVALS = 250
CASES = 40
DRAFTING = 20  # further cases, with a worker that drafts
POLICIES = ("fcfs", "lpm", "random", "dfs-weight", "lof")


def _is_tight(case: int) -> bool:
    return case % 3 == 1 or case % 7 == 0


def random_setup(case: int) -> Setup:
    """Cases cover all policies, modes and both pipelines; sizes are drawn. A third of them has a
    pool that holds few of the running requests to their end."""
    rng = Random(case)
    page_size = rng.choice((2, 4))
    windows = (0, 2, 3)[case % 3]
    is_tight = _is_tight(case)
    max_running = rng.randint(4, 7) if is_tight else rng.randint(1, 7)
    slope = rng.choice((0, 0, 2)) if windows else 0
    replay = 8 + slope * (windows - 1) if windows else 0
    return Setup(
        page_size=page_size,
        num_pages=(rng.randint(60, 80) if is_tight else rng.randint(100, 200)) // page_size,
        max_running=max_running,
        warm=rng.choice((0, 1, 4)) if windows else 0,
        windows=windows,
        mode=("bounded", "exact", "canonical", "off")[case // 3 % 4],
        slope=slope,
        grid=page_size * rng.choice((1, 2, 4, 7)),
        prefix_cache=case % 11 != 10,
        chunk_tokens=max(replay, max_running - 1) + page_size + rng.choice((0, 3, 40)),
        max_queued=rng.choice((-1, -1, 16)),
        policy=POLICIES[case % 5],
        conservativeness=rng.choice((0.01, 0.3)) if is_tight else 1.0,
        overlap=case % 2 == 0,
        priorities=case % 4 < 2,
        preempt_gap=case % 7,
        context_len=80,
        model=FakeModel(stop_rate=0.02, nan_rate=0.001),
        draft_tokens=0 if case < CASES else 1 + case % 5,
    )


class Traffic:
    """Sessions that grow turn by turn, forks and repeats, with random options."""

    def __init__(self, loop: Loop, rng: Random, *, is_tight: bool) -> None:
        self.loop = loop
        self.is_tight = is_tight
        self.rng = rng
        self.sent: dict[str, GenerateRequest] = {}
        self.aborted: set[str] = set()
        self.system = [[rng.randrange(50) for _ in range(40)] for _ in range(3)]

    def prompt(self) -> list[int]:
        rng = self.rng
        past = list(self.loop.done)[-12:]
        if past and rng.random() < 0.5:
            rid = rng.choice(past)
            tokens = [*self.sent[rid].prompt_ids, *self.loop.text[rid]]
            tokens = tokens[: rng.randint(1, len(tokens))] if rng.random() < 0.3 else tokens
        else:
            tokens = self.system[rng.randrange(3)][: rng.randint(1, 40)]
        tokens = tokens + [rng.randrange(50) for _ in range(rng.randint(0, 12))]
        return tokens[-rng.randint(1, 9) :] if self.is_tight else tokens[:82]

    def next_turn(self) -> GenerateRequest | None:
        """One of the last requests, whose window may still be warm, to go on from."""
        past = [self.sent[rid] for rid in list(self.loop.done)[-4:]]
        past = [x for x in past if len(x.prompt_ids) < (24 if self.is_tight else 60)]
        return self.rng.choice(past) if past and self.rng.random() < 0.4 else None

    def arrive(self) -> None:
        rng = self.rng
        rid = f"r{len(self.sent)}"
        most = rng.choice((1, 16, 32) if self.is_tight else (0, 1, 2, 5, 12, 20))
        prompt = self.prompt()
        namespace: Namespace = rng.choice(((), (), (("salt", "x"),)))
        before = self.next_turn()
        if before is not None:
            more = [rng.randrange(50) for _ in range(rng.randint(0, 6))]
            prompt = [*before.prompt_ids, *self.loop.text[before.rid], *more][:82]
            prompt = prompt[: rng.randint(1, len(prompt))] if rng.random() < 0.2 else prompt
            namespace = before.namespace
        self.sent[rid] = self.loop.add(
            rid,
            prompt,
            max_new_tokens=most,
            min_new_tokens=rng.choice((0, 0, 3)),
            seed=rng.randrange(3),
            stop_token_ids=rng.choice(((STOP,), (STOP, 9), ())),
            presence_penalty=rng.choice((0.0, 0.5)),
            namespace=namespace,
            session=rng.choice((None, "a", "b")),
            replay_mode=rng.choice((None, None, "bounded", "exact", "canonical", "off")),
            top_logprobs=rng.choice((None, None, 0)),
            logprob_start=rng.choice((None, None, 0, rng.randint(0, len(prompt)))),
            priority=rng.choice((0, 0, 0, 1, 20)),
        )
        for _ in range(rng.choice((1, 3)) if rng.random() < 0.1 else 0):
            self.fork(rid)

    def fork(self, parent: str) -> None:
        """Another choice of the same prompt."""
        message = self.sent[parent]
        rid = RequestId(f"r{len(self.sent)}")
        sampling = replace(message.sampling, seed=self.rng.randrange(3))
        forked = replace(message, rid=rid, sampling=sampling, logprob_start=None)
        self.sent[rid] = replace(forked, fork_of=RequestId(parent))
        self.loop.scheduler.add(self.sent[rid], self.loop.now)
        self.loop.collect()

    def live(self) -> list[str]:
        return [rid for rid in self.sent if rid not in self.loop.done]

    def abort_one(self) -> None:
        live = self.live()
        if live:
            rid = self.rng.choice(live)
            self.aborted.add(rid)
            reason = self.rng.choice(("client", "user", "stop"))
            self.loop.scheduler.abort(AbortRequest(RequestId(rid), reason), self.loop.now)
            self.loop.collect()

    def abort_all(self) -> None:
        self.aborted.update(self.live())
        self.loop.scheduler.abort_all("user", self.loop.now)
        self.loop.collect()

    def flush(self) -> None:
        ok, _ = self.loop.scheduler.flush()
        assert ok or self.loop.scheduler.has_work
        self.loop.cache.check()


def act(traffic: Traffic, rng: Random) -> None:
    """One random move of a client, or of the process that holds scheduler and worker."""
    choice = rng.random()
    if choice < 0.15:
        for _ in range(rng.choice((1, 1, 1, 8)) if len(traffic.live()) < 15 else 0):
            traffic.arrive()
    elif choice < 0.158:
        traffic.abort_one()
    elif choice < 0.1583:
        traffic.abort_all()
    elif choice < 0.165:
        traffic.flush()
    else:
        turn(traffic.loop, rng)


def turn(loop: Loop, rng: Random) -> None:
    """Plan, or let the worker run ahead of the commits, or commit."""
    scheduler = loop.scheduler
    choice = rng.random()
    if choice < 0.55 and scheduler.can_plan:
        idle = loop.plan() is None and not scheduler.in_flight
        assert not (idle and scheduler.has_work), "nothing runs and work waits"
    elif choice < 0.65 and loop.worker.pending:
        loop.run_worker()
    elif scheduler.in_flight:
        loop.commit()


def check_end(traffic: Traffic, rid: str, output: RequestOutput) -> None:
    """The text is what the request has alone, cut where it was aborted."""
    loop, sent = traffic.loop, traffic.sent[rid]
    text, finish, usage = loop.text[rid], output.finish, output.usage
    assert finish is not None
    assert usage.prompt_tokens == len(sent.prompt_ids)
    assert 0 <= usage.replayed_tokens <= usage.cached_tokens
    assert usage.cached_tokens <= max(0, usage.prompt_tokens - 1)
    if finish.status == 400:
        assert not text
        return
    check_scores(loop, rid, sent)
    oracle = loop.setup.model.oracle(sent.prompt_ids, sent.sampling, loop.setup.context_len)
    assert text == oracle.token_ids[: len(text)]
    if finish.status == 500:
        assert oracle.reason == "nan" and text == oracle.token_ids
    elif finish.status == 503:
        assert "pool" in finish.message or "queue is full" in finish.message
    elif rid not in traffic.aborted or finish.matched is not None or finish.reason == "length":
        assert (finish.reason, text) == (oracle.reason, oracle.token_ids)


def check_scores(loop: Loop, rid: str, sent: GenerateRequest) -> None:
    """All that were asked for when a token came, else the first of them: none twice (T43)."""
    got = loop.scores.get(rid, [])
    if sent.logprob_start is None:
        assert not got
        return
    expected = prompt_logprobs(sent.prompt_ids, sent.logprob_start)
    assert got == (expected if loop.text[rid] else expected[: len(got)])


@pytest.mark.parametrize("case", range(CASES + DRAFTING))
def test_random_load_keeps_every_promise(case: int, check_idle, monkeypatch):
    if _is_tight(case):  # forget a preemption at once, so that there are many
        monkeypatch.setattr(estimate, "DECAY", 0.1)
    rng = Random(1000 + case)
    loop = Loop(random_setup(case))
    traffic = Traffic(loop, rng, is_tight=_is_tight(case))
    while len(traffic.sent) < ARRIVALS:
        act(traffic, rng)
    loop.drain(limit=20_000)
    assert set(loop.done) == set(traffic.sent)
    for rid, output in loop.done.items():
        check_end(traffic, rid, output)
    check_idle(loop)


@pytest.fixture
def check_idle() -> Callable[[Loop], None]:
    def check(loop: Loop) -> None:
        gauges = loop.gauges()
        assert gauges["running"] == gauges["waiting"] == gauges["parked_chunks"] == 0
        assert gauges["pages{state=private}"] == gauges["pages{state=protected}"] == 0
        assert gauges["pages{state=quarantine}"] == gauges["window_slots{state=taken}"] == 0
        assert loop.scheduler.flush()[0]
        assert loop.gauges()["pages{state=free}"] == loop.setup.num_pages - 1

    return check
