"""The in-flight table: naming, abort, loss of the engine, and a random load that must not leak."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from test.serving import EOS, READY, FakeEngine, byte_tokenizer, hold, refuse
from treadle.srt.errors import BadRequest, InvariantBroken, Overloaded, TreadleError, WorkerLost
from treadle.srt.lifecycle import Failed, Shutdown
from treadle.srt.messages import AbortRequest, Finish, GenerateRequest, RequestId, SamplingParams
from treadle.srt.metrics import RequestMetrics
from treadle.srt.tokenizer.choice import Delta
from treadle.srt.tokenizer.frontend import Frontend, ServingState
from treadle.srt.tokenizer.generation import Generation
from treadle.srt.tokenizer.jobs import PromptJob
from treadle.srt.tokenizer.trail import TextRules


def job(n: int = 1, rid: str = "", stop: tuple[str, ...] = (), interval: int = 1) -> PromptJob:
    params = SamplingParams(max_new_tokens=50, stop_token_ids=(EOS,))
    request = GenerateRequest(RequestId(rid), array("i", [1, 2, 3]), params)
    return PromptJob(request, TextRules(stop=stop), n, interval)


@asynccontextmanager
async def running(engine: FakeEngine, *, is_ready: bool = True) -> AsyncIterator[Frontend]:
    frontend = Frontend(engine, byte_tokenizer(), RequestMetrics("tiny"))
    receiving = asyncio.create_task(frontend.run())
    if is_ready:
        engine.put(READY)
        await frontend.serving.wait()
    try:
        yield frontend
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def drained(generation: Generation) -> list[Delta]:
    return [delta async for delta in generation]


async def settle(engine: FakeEngine) -> None:
    """Until everything that the engine has said was taken."""
    async with asyncio.timeout(60):
        while not engine.inbox.empty():
            await asyncio.sleep(0)


async def test_deltas_add_up_to_the_text_with_one_ending():
    engine = FakeEngine()
    async with running(engine) as frontend:
        deltas = await drained(frontend.submit([job()], rid="r"))
        assert "".join(d.text for d in deltas) == "hello"
        assert [i for d in deltas for i in d.token_ids] == [*b"hello", EOS]
        assert [d.ending.reason for d in deltas if d.ending] == ["stop"]
        assert deltas[-1].usage.completion_tokens == 6
        assert (frontend.num_live, frontend.num_ended) == (0, 0)
        assert engine.aborts == []


async def test_stop_string_ends_here_at_once_and_there_by_an_abort():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        generation = frontend.submit([job(stop=("ll",))], rid="r")
        engine.on_abort = lambda message: None
        engine.emit("r", b"hello wo")
        deltas = await drained(generation)
        assert "".join(d.text for d in deltas) == "he"
        assert deltas[-1].usage.completion_tokens == 4
        assert deltas[-1].ending is not None
        assert deltas[-1].ending.matched == "ll"
        assert engine.aborts == [AbortRequest(RequestId("r"), "stop")]
        await settle(engine)
        assert (frontend.num_live, frontend.num_ended) == (0, 0)


async def test_name_of_an_ended_request_is_free_before_the_scheduler_has_forgotten_it():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        frontend.submit([job()], rid="r").close()
        assert frontend.num_ended == 1
        again = frontend.submit([job()], rid="r")
        assert [r.rid for r in engine.requests] == ["r", "r~1"]
        await settle(engine)  # the late end of the first must not end the second
        assert (frontend.num_live, frontend.num_ended) == (1, 0)
        engine.emit("r~1", [EOS], Finish("stop", matched=EOS))
        assert len(await drained(again)) == 1
        assert again.choices[0].rid == "r"


async def test_made_up_wire_ids_are_not_those_of_the_same_batch():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        frontend.submit([job(rid="a"), job(rid="b")], rid="r").close()
        frontend.submit([job(rid="a"), job(rid="a~1"), job(rid="b")], rid="s")
        sent = [r.rid for r in engine.requests][2:]
        assert sent == ["a~2", "a~1", "b~1"]


async def test_late_close_does_not_end_a_later_request_of_the_same_name():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        first = frontend.submit([job()], rid="r")
        engine.emit("r", [EOS], Finish("stop", matched=EOS))
        await settle(engine)
        second = frontend.submit([job()], rid="r")
        first.close()
        assert (frontend.num_live, engine.aborts) == (1, [])
        engine.emit("r", [EOS], Finish("stop", matched=EOS))
        assert len(await drained(second)) == 1


async def test_ids_in_flight_are_refused_and_nothing_is_left_behind():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        first = frontend.submit([job(2), job(rid="own")], rid="r")
        assert [r.rid for r in engine.requests] == ["r-0", "r-1", "own"]
        for rid, prompt_rid in (("r", ""), ("r-1", ""), ("own", ""), ("x", "own"), ("x", "r")):
            with pytest.raises(BadRequest):
                frontend.submit([job(rid=prompt_rid)], rid=rid)
        with pytest.raises(BadRequest, match="must differ"):
            frontend.submit([job(rid="a"), job(rid="a")], rid="x")
        assert frontend.num_live == 3
        first.close()
        frontend.submit([job()], rid="r").close()


async def test_message_that_cannot_travel_leaves_no_entry():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        bad = PromptJob(
            GenerateRequest(RequestId("\ud800"), array("i", [1]), SamplingParams(1)), TextRules()
        )
        with pytest.raises(TreadleError):
            frontend.submit([job(rid="good"), bad], rid="r")
        await settle(engine)
        assert (frontend.num_live, frontend.num_ended) == (0, 0)
        frontend.submit([job(rid="good")], rid="r").close()


async def test_user_abort_keeps_the_text_and_the_message():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        generation = frontend.submit([job(2)], rid="r")
        engine.emit("r-0", b"he")
        assert frontend.abort("r-0", "enough") == 1
        assert frontend.abort("r-0", "again") == 0
        assert frontend.abort("r", "all") == 1
        deltas = await drained(generation)
        endings = {d.index: d.ending for d in deltas if d.ending}
        assert {i: (e.reason, e.message) for i, e in endings.items()} == {
            0: ("abort", "enough"),
            1: ("abort", "all"),
        }


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequest), (503, Overloaded), (500, TreadleError)]
)
async def test_refusals_of_the_scheduler_keep_status_and_words(status: int, kind: type):
    async with running(FakeEngine(script=refuse(status, "because"))) as frontend:
        with pytest.raises(TreadleError, match="because") as caught:
            await drained(frontend.submit([job()], rid="r"))
        assert type(caught.value) is kind
        assert frontend.num_live == 0


async def test_loss_of_the_engine_ends_everything_at_once():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        generations = [frontend.submit([job(2)], rid=f"r{i}") for i in range(3)]
        engine.is_silent = True
        waiting = [asyncio.create_task(frontend.stats()), asyncio.create_task(frontend.flush())]
        await asyncio.sleep(0)
        engine.put(Failed("worker", 0, "killed"))
        for generation in generations:
            with pytest.raises(WorkerLost, match="killed"):
                await drained(generation)
            generation.close()
        for reply in waiting:
            with pytest.raises(WorkerLost):
                await reply
        assert frontend.state is ServingState.DEAD
        assert (frontend.num_live, frontend.num_ended) == (0, 0)
        assert frontend.stopping.is_set()
        with pytest.raises(WorkerLost):
            frontend.submit([job()], rid="r")


async def test_shutdown_drains():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        generation = frontend.submit([job()], rid="r")
        engine.put(Shutdown("stop"))
        await frontend.stopping.wait()
        with pytest.raises(Overloaded, match="draining"):
            frontend.submit([job()], rid="x")
        idle = asyncio.create_task(frontend.wait_idle())
        engine.emit("r", [EOS], Finish("stop", matched=EOS))
        assert len(await drained(generation)) == 1
        await idle


async def test_nothing_is_accepted_before_ready_and_odd_messages_are_bugs():
    engine = FakeEngine()
    async with running(engine, is_ready=False) as frontend:
        with pytest.raises(Overloaded, match="starting"):
            frontend.submit([job()], rid="r")
    frontend = Frontend(engine, byte_tokenizer(), RequestMetrics("tiny"))
    engine.put(AbortRequest(RequestId("r"), "user"))
    with pytest.raises(InvariantBroken):
        await frontend.run()


class RandomLoad:
    """Clients that come, read and leave, and a scheduler that answers, all at random."""

    def __init__(self, frontend: Frontend, engine: FakeEngine, seed: int) -> None:
        self.frontend = frontend
        self.engine = engine
        self.rng = random.Random(seed)

    def rid(self) -> str:
        return f"r{self.rng.randint(0, 30)}"

    def job(self) -> PromptJob:
        stop = self.rng.choice([(), ("ab",), ("b",)])
        return job(self.rng.randint(1, 3), stop=stop, interval=self.rng.randint(0, 3))

    async def client(self) -> None:
        jobs = [self.job() for _ in range(self.rng.randint(1, 2))]
        try:
            generation = self.frontend.submit(jobs, rid=self.rid())
        except BadRequest:
            return
        try:
            await self.read(generation, self.rng.randint(0, 40))
        except TreadleError:
            pass
        finally:
            generation.close()

    async def read(self, generation: Generation, patience: int) -> None:
        ended: set[int] = set()
        async for delta in generation:
            assert delta.index not in ended
            if delta.ending is not None:
                ended.add(delta.index)
            patience -= 1
            if patience < 0:
                return
        assert len(ended) == len(generation.choices)

    async def schedule(self) -> None:
        rng, live = self.rng, self.engine.live
        endings = [Finish("length"), Finish("stop", matched=EOS)]
        endings.append(Finish("abort", message="no room", status=503))
        while True:
            await asyncio.sleep(0)
            for rid in rng.sample(sorted(live), min(4, len(live))):
                finish = rng.choice([*[None] * 8, *endings])
                self.engine.emit(rid, rng.choices(b"abc", k=rng.randint(0, 3)), finish)
            if rng.random() < 0.1:
                self.frontend.abort(self.rid(), "user", is_prefix=rng.random() < 0.3)

    async def run(self, num_clients: int) -> None:
        scheduling = asyncio.create_task(self.schedule())
        clients: list[asyncio.Task[None]] = []
        for _ in range(num_clients):
            clients.append(asyncio.create_task(self.client()))
            if self.rng.random() < 0.3:
                self.rng.choice(clients).cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            results = await asyncio.gather(*clients, return_exceptions=True)
        scheduling.cancel()
        assert not [r for r in results if isinstance(r, Exception)]


@pytest.mark.parametrize("seed", range(8))
async def test_random_disconnects_and_aborts_leak_nothing(seed: int):
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        await RandomLoad(frontend, engine, seed).run(200)
        assert frontend.num_live == 0
        await settle(engine)
        assert frontend.num_ended == 0
        assert engine.live == {}
        assert frontend._names == set()
        assert len(engine.requests) > 100


async def test_further_choices_of_a_prompt_fork_off_its_first():
    engine = FakeEngine(script=hold)
    async with running(engine) as frontend:
        frontend.submit([job(3), job(2), job()], rid="r")
        forks = [(sent.rid, sent.fork_of) for sent in engine.requests]
        assert forks == [
            ("r-0", None),
            ("r-1", "r-0"),
            ("r-2", "r-0"),
            ("r-3", None),
            ("r-4", "r-3"),
            ("r-5", None),
        ]
