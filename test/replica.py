"""The loops of a scheduler process and of a worker process in threads, over their real sockets.

The test is their tokenizer, and can look into the worker's pools and the scheduler's tree between
two requests: nothing runs then.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from test.loading import HOST
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import CacheSection, ModelSection, SchedSection, ServerConfig
from treadle.srt.lifecycle import Shutdown
from treadle.srt.messages import (
    GenerateRequest,
    RequestId,
    RequestOutput,
    SamplingParams,
    TokenOutput,
)
from treadle.srt.net.ipc import Hub, make_endpoints
from treadle.srt.procs.boot import Boot
from treadle.srt.procs.scheduler import build_bookkeeping
from treadle.srt.procs.step_loop import Ports, StepLoop
from treadle.srt.procs.worker import execute_plans
from treadle.srt.resolve import resolve
from treadle.srt.worker.runner import Runner

WAIT_S = 120.0


class Replica:
    def __init__(self, path: Path, folder: Path, cache: CacheSection, sched: SchedSection) -> None:
        """`path`: a checkpoint. `folder`: of sockets, its path is short."""
        facts = load_model_config(path)
        config = resolve(ServerConfig(ModelSection(path=str(path)), cache, sched), facts, HOST)
        ends = make_endpoints("ipc", folder, 1)
        boot = Boot("scheduler", 0, config, facts, str(path), ends, str(folder), 0)
        self.runner = Runner.load(config, facts, path, lambda done, total, label: None)
        self.books = build_bookkeeping(boot, self.runner.capacity(0), None)
        self._hub = Hub()
        self._tokenizer = self._hub.inbox(ends.tokenizer)
        inbox, worker = self._hub.inbox(ends.scheduler), self._hub.inbox(ends.workers[0])
        outbox = self._hub.outbox
        self._scheduler, self._worker = outbox(ends.scheduler), outbox(ends.workers[0])
        ports = Ports(inbox, outbox(ends.tokenizer), (outbox(ends.workers[0]),))
        loop = StepLoop(lambda: self.books, ports, WAIT_S, 1000)
        answers = outbox(ends.scheduler)
        self._threads = [
            threading.Thread(target=loop.run),
            threading.Thread(target=execute_plans, args=(worker, self.runner, answers)),
        ]
        self._count = 0

    def __enter__(self) -> Replica:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for outbox in (self._scheduler, self._worker):
            outbox.send(Shutdown("over"))
        for thread in self._threads:
            thread.join(WAIT_S)
        self._hub.close()

    def answer(self, prompt: Sequence[int], replay_mode: str | None = None) -> RequestOutput:
        """One token after `prompt`."""
        self._count += 1
        rid, sampling = RequestId(f"r{self._count}"), SamplingParams(1, temperature=0.0)
        message = GenerateRequest(rid, array("i", prompt), sampling, replay_mode=replay_mode)
        self._scheduler.send(message)
        while True:
            found = self._tokenizer.recv(WAIT_S)
            assert isinstance(found, TokenOutput), "no answer in time"
            for output in found.outputs:
                assert output.rid == rid
                if output.finish is not None:
                    return output
