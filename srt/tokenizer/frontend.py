"""The in-flight table of the process that talks to clients: submit -> stream of deltas, abort.

Owns which requests this process still owes an answer, the id every choice has on the wire, and
the replica's state as clients see it. Does not know HTTP, and does not decide anything that the
scheduler decides.

    submit: one Choice per prompt and n -> `_live` -> GenerateRequest
    ended here first (client gone, stop string): `_live` -> `_ended` -> AbortRequest
    the scheduler's terminal output: out of `_live` or `_ended`

Invariants: a choice is in `_live` or in `_ended` from its GenerateRequest to the scheduler's one
terminal output of it, and in neither afterwards; a generation gets exactly one end; when the
engine is lost both tables are empty and every generation has got WorkerLost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol, TypeVar

from ..errors import (
    BadRequest,
    InvariantBroken,
    NotAdmitted,
    Overloaded,
    TreadleError,
    WorkerLost,
)
from ..lifecycle import Failed, Ready, Shutdown
from ..messages import (
    AbortRequest,
    Done,
    Finish,
    Flush,
    Message,
    PromptOutput,
    ReleaseSessions,
    RequestId,
    RequestOutput,
    Stats,
    StatsRequest,
    TokenOutput,
)
from ..metrics import RequestMetrics
from ..profiling import Profile, ProfileOptions
from ..snapshot import Snapshot, SnapshotRequest
from .choice import Choice
from .encode import Tokenizer
from .generation import Generation
from .jobs import ChoiceName, PromptJob, name_choices
from .replies import Replies
from .scores import PromptLog
from .stats import Meter
from .trail import TextTrail

T = TypeVar("T", Done, Stats, Snapshot)

NO_ERROR = (200, 499)  # 499: ended because somebody on this side asked for it
_ERRORS: dict[int, type[TreadleError]] = {400: BadRequest, 503: Overloaded}


class Channel(Protocol):
    def send(self, message: Message) -> None: ...

    async def recv(self) -> Message: ...


class ServingState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    DEAD = "dead"


class Frontend:
    def __init__(self, channel: Channel, tokenizer: Tokenizer, metrics: RequestMetrics) -> None:
        self._channel = channel
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._live: dict[RequestId, tuple[Choice, Generation]] = {}
        self._ended: set[RequestId] = set()
        self._names: set[str] = set()
        self._replies = Replies()
        self._output_seen = asyncio.Event()
        self._idle = asyncio.Event()
        self.lost: str | None = None  # why the engine is gone
        self.state = ServingState.STARTING
        self.serving = asyncio.Event()  # set once, when requests are accepted
        self.capacity: Ready | None = None  # the scheduler's, once serving
        self.stopping = asyncio.Event()  # set once, by Shutdown or the loss of the engine
        self.hurried = asyncio.Event()  # set by a second Shutdown: what runs may not end
        self.last_output_at = time.monotonic()

    @property
    def num_live(self) -> int:
        """Choices that still owe their client something."""
        return len(self._live)

    @property
    def num_ended(self) -> int:
        """Choices that ended here, but of which the scheduler has not yet sent the last word."""
        return len(self._ended)

    def submit(
        self,
        jobs: Sequence[PromptJob],
        *,
        rid: str,
        is_streaming: bool = False,
        is_probe: bool = False,
    ) -> Generation:
        """Enters all choices and sends them. Lengths and ids were checked by `Limits`.

        A probe is one of our own health checks; it is not counted in the metrics.
        Raises Overloaded while starting or draining, WorkerLost when the engine is dead, and
        BadRequest for an id that is in flight.
        """
        self.check_serving()
        named = name_choices(jobs, rid)
        names = self._claim(named, rid)
        choices = self._make_choices(named)
        meter = Meter(None if is_probe else self._metrics, is_streaming=is_streaming)
        generation = Generation(rid, choices, meter, self._release)
        self._enter(generation, names)
        meter.arrived(len(jobs))
        return generation

    def check_serving(self) -> None:
        """Raises Overloaded or WorkerLost unless requests are accepted now."""
        if self.state is ServingState.DEAD:
            raise WorkerLost(f"the engine is gone: {self.lost}")
        if self.state is not ServingState.SERVING:
            raise NotAdmitted(f"the server is {self.state.value}; try again or elsewhere")

    def abort(self, rid: str, message: str, *, is_prefix: bool = False) -> int:
        """Ends, with finish reason "abort", the choices whose own id, prompt's id or HTTP
        request's id is `rid` (with `is_prefix`: starts with it). Returns how many those are.
        """
        chosen = []
        for choice, generation in self._live.values():
            names = (choice.rid, choice.prompt_rid, generation.rid)
            if rid in names or (is_prefix and any(name.startswith(rid) for name in names)):
                chosen.append(choice)
        return self._abort(chosen, message)

    def abort_all(self, message: str) -> int:
        return self._abort([choice for choice, _ in self._live.values()], message)

    def release_sessions(self, sessions: Sequence[str], owner: tuple[tuple[str, str], ...]) -> None:
        """Raises Overloaded while starting or draining, WorkerLost when the engine is dead."""
        self.check_serving()
        self._channel.send(ReleaseSessions(tuple(sessions), owner))

    async def flush(self) -> Done:
        """Asks for an empty prefix cache, once. Raises WorkerLost."""
        return await self._ask(Flush, Done)

    async def profile(self, options: ProfileOptions | None) -> Done:
        """Starts a profile of the workers; None stops it. Raises WorkerLost."""
        return await self._ask(lambda token: Profile(token, options), Done)

    async def stats(self) -> Stats:
        """The scheduler's numbers as they are now. Raises WorkerLost."""
        return await self._ask(StatsRequest, Stats)

    async def snapshot(self) -> Snapshot:
        """The scheduler's numbers with what they are of. Raises WorkerLost."""
        return await self._ask(SnapshotRequest, Snapshot)

    async def wait_output(self) -> None:
        """Returns when the engine has produced something, for anybody, or is dead."""
        self._output_seen.clear()
        await self._output_seen.wait()

    async def wait_idle(self) -> None:
        """Returns when no choice is live."""
        while self._live:
            self._idle.clear()
            await self._idle.wait()

    def drain(self) -> None:
        """Accept no more; what runs may end, unless this is said a second time."""
        if self.state is ServingState.DRAINING:
            self.hurried.set()
        if self.state is not ServingState.DEAD:
            self.state = ServingState.DRAINING
        self.stopping.set()

    async def run(self) -> None:
        """Receives until the engine is lost. Raises WireError, InvariantBroken."""
        while True:
            message = await self._channel.recv()
            if isinstance(message, TokenOutput):
                self._take_prompts(message.prompts)
                self._take_outputs(message.outputs)
            elif isinstance(message, Done | Stats | Snapshot):
                self._replies.answer(message.token, message)
            elif isinstance(message, Ready):
                self._serve(message)
            elif isinstance(message, Failed):
                self.lose(f"{message.role}: {message.message}")
                return
            elif isinstance(message, Shutdown):
                self.drain()
            else:
                raise InvariantBroken(f"the tokenizer process got a {type(message).__name__}")

    def lose(self, reason: str) -> None:
        """The engine is gone: every generation and every waiting reply gets WorkerLost, now."""
        self.state = ServingState.DEAD
        self.lost = reason
        self.end_all(f"the engine stopped while the request was running: {reason}")
        self.stopping.set()

    def end_all(self, message: str) -> None:
        """Every generation and every waiting reply gets WorkerLost; the tables are empty."""
        error = WorkerLost(message)
        for generation in {id(g): g for _, g in self._live.values()}.values():
            generation.put(error)
        self._live.clear()
        self._ended.clear()
        self._names.clear()
        self._replies.fail(error)
        self._output_seen.set()
        self._idle.set()

    async def _ask(self, question: Callable[[int], Message], kind: type[T]) -> T:
        self.check_serving()
        token, reply = self._replies.expect()
        self._channel.send(question(token))
        answer = await reply
        if not isinstance(answer, kind):
            raise InvariantBroken(f"{type(answer).__name__} is no answer to question {token}")
        return answer

    def _serve(self, ready: Ready) -> None:
        self.capacity = ready
        if self.state is ServingState.STARTING:
            self.state = ServingState.SERVING
            self.serving.set()

    def _claim(self, named: Sequence[ChoiceName], rid: str) -> set[str]:
        names = {rid, *(n.rid for n in named), *(n.prompt_rid for n in named)}
        taken = sorted(names & self._names)
        if taken:
            raise BadRequest(f"rid {taken[0]!r} belongs to a running request", param="rid")
        if len({n.rid for n in named}) < len(named):
            raise BadRequest("the ids in rid must differ", param="rid")
        return names

    def _enter(self, generation: Generation, names: set[str]) -> None:
        generation.names = names
        self._names |= names
        try:
            for choice in generation.choices:
                self._channel.send(choice.request)
                self._live[choice.wire_rid] = (choice, generation)
        except TreadleError:
            generation.close()
            self._names -= names
            raise

    def _make_choices(self, named: Sequence[ChoiceName]) -> tuple[Choice, ...]:
        now = time.monotonic()
        choices: list[Choice] = []
        log: PromptLog | None = None
        taken = {name.rid for name in named}
        for index, name in enumerate(named):
            wire_rid = self._wire_rid(name.rid, taken)
            request = name.request(wire_rid)
            if name.ordinal:
                request = replace(request, fork_of=choices[index - name.ordinal].wire_rid)
            trail = TextTrail(self._tokenizer, name.job.rules, request.sampling.min_new_tokens)
            if request.logprob_start is not None:
                log = PromptLog.of(request)
            elif name.ordinal == 0:
                log = None
            choices.append(Choice(name, wire_rid, index, request, trail, now, log))
        return tuple(choices)

    def _wire_rid(self, name: str, taken: set[str]) -> RequestId:
        """The scheduler may still know an ended choice of this name: late outputs must miss. An id
        made up here is none of `taken`, the names and made up ids of its HTTP request."""
        wire_rid, count = RequestId(name), 0
        while wire_rid in self._ended or wire_rid in self._live or (count and wire_rid in taken):
            count += 1
            wire_rid = RequestId(f"{name}~{count}")
        taken.add(wire_rid)
        return wire_rid

    def _take_prompts(self, prompts: Sequence[PromptOutput]) -> None:
        for prompt in prompts:
            entry = self._live.get(prompt.rid)
            if entry is not None and entry[0].scores is not None:
                entry[0].scores.add(prompt)

    def _take_outputs(self, outputs: Sequence[RequestOutput]) -> None:
        now = time.monotonic()
        self.last_output_at = now
        for output in outputs:
            entry = self._live.get(output.rid)
            if entry is None:
                if output.finish is not None:
                    self._ended.discard(output.rid)
                continue
            self._deliver(entry[0], entry[1], output, now)
        self._output_seen.set()

    def _deliver(
        self, choice: Choice, generation: Generation, output: RequestOutput, now: float
    ) -> None:
        finish, meter = output.finish, generation.meter
        if finish is not None:
            self._forget(choice, generation)
        if finish is not None and finish.status not in NO_ERROR:
            meter.finished(choice, is_aborted=True, now=now)
            generation.put(_error_of(finish))
            return
        before, is_admitted = choice.num_tokens, choice.is_admitted
        delta = choice.take(output)
        if not is_admitted:
            meter.admitted(choice)
        meter.progressed(choice, choice.num_tokens - before, output.queue_s, now)
        if delta is None:
            return
        if delta.ending is not None:
            if finish is None:
                self._end_early(choice, generation, "stop")
            meter.finished(choice, is_aborted=delta.ending.reason == "abort", now=now)
        generation.put(delta)

    def _end_early(self, choice: Choice, generation: Generation, reason: str) -> None:
        self._forget(choice, generation)
        self._ended.add(choice.wire_rid)
        self._channel.send(AbortRequest(choice.wire_rid, reason))

    def _forget(self, choice: Choice, generation: Generation) -> None:
        del self._live[choice.wire_rid]
        generation.num_live -= 1
        if generation.num_live == 0:
            self._names -= generation.names
        if not self._live:
            self._idle.set()

    def _release(self, generation: Generation) -> None:
        for choice in generation.choices:
            entry = self._live.get(choice.wire_rid)
            # The name of a choice that ended is free: by now it may be a later request's.
            if entry is not None and entry[0] is choice:
                self._end_early(choice, generation, "client")
                generation.meter.finished(choice, is_aborted=True, now=time.monotonic())

    def _abort(self, choices: Sequence[Choice], message: str) -> int:
        """The scheduler's terminal output of each becomes the client's; once is enough."""
        choices = [choice for choice in choices if choice.abort_message is None]
        for choice in choices:
            choice.abort_message = message
            self._channel.send(AbortRequest(choice.wire_rid, "user"))
        return len(choices)


def _error_of(finish: Finish) -> TreadleError:
    kind = _ERRORS.get(finish.status, TreadleError)
    if kind is Overloaded and not finish.was_admitted:
        kind = NotAdmitted
    return kind(finish.message or "the engine could not run the request")
