"""What our three processes cost a decode step, and whether the device hides it.

Sixty-four requests decode at once. In a first run the CPU time of each process is divided by the
steps; in a second one the worker's profile says what ran when: ranges of the host, from
`worker/marks.py`, against kernels and copies of the device.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from benchmark.gpu.serve import CONCURRENT, TOKENIZER_IDS, spec
from benchmark.serving.client import Json, exchange, post
from benchmark.serving.servers import Server
from prometheus_client.parser import text_string_to_metric_families

PROMPT, TOKENS = 128, 8192
SETTLE_S = 2.0  # until all prompts have run and every step is a decode step
WINDOW_S = 2.0
PROFILED_STEPS = 40
TRACE_S = 60.0
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
PARTS = ("batch", "forward", "sample")

Span = tuple[float, float]  # microseconds of the trace's clock


@dataclass(frozen=True, slots=True)
class Timeline:
    """Of one trace. `parts`: the host's ranges of each name."""

    steps: list[Span]
    parts: dict[str, list[Span]]
    device: list[Span]


def measure(name: str) -> dict[str, object]:
    with Server(spec(name)) as server, tempfile.TemporaryDirectory() as folder:
        server.wait_until_ready()
        with _decoding(server):
            processes = _processes(server)
        with _decoding(server):
            timeline = figures(read(_trace(server, Path(folder))))
    overhead = sum(processes["cpu_us_per_step"].values())
    return {"processes": processes, "timeline": timeline, "overhead_us_per_step": overhead}


def read(trace: Json) -> Timeline:
    """`trace`: a file of torch's profiler, parsed."""
    events = trace["traceEvents"]
    assert isinstance(events, list)
    steps, device = [], []
    parts: dict[str, list[Span]] = {part: [] for part in PARTS}
    for event in events:
        if event.get("ph") != "X":
            continue
        span = (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        word = str(event.get("name", ""))
        if event.get("cat") in ON_DEVICE:
            device.append(span)
        elif event.get("cat") != "user_annotation" or not word.startswith("treadle."):
            continue
        elif word.startswith("treadle.step "):
            steps.append(span)
        elif word.removeprefix("treadle.") in parts:
            parts[word.removeprefix("treadle.")].append(span)
    return Timeline(sorted(steps), {k: sorted(v) for k, v in parts.items()}, merged(device))


def figures(timeline: Timeline) -> dict[str, float]:
    """Of whole steps between the first launch and the last. `hidden_share`: of the time that the
    host launches, how much the device was at work; `idle_share`: of all time, how much it was not.
    """
    first, last = timeline.steps[0][0], timeline.steps[-1][0]
    all_us, count = last - first, len(timeline.steps) - 1
    launches = timeline.steps[:-1]
    launch_us = sum(end - start for start, end in launches)
    hidden_us = sum(_busy(timeline.device, *span) for span in launches)
    found = {
        "steps": float(count),
        "step_us": all_us / count,
        "device_busy_us": _busy(timeline.device, first, last) / count,
        "idle_share": 1 - _busy(timeline.device, first, last) / all_us,
        "launch_us": statistics.median(end - start for start, end in launches),
        "hidden_share": hidden_us / launch_us,
    }
    for part, spans in timeline.parts.items():
        if spans:
            found[f"{part}_us"] = statistics.median(end - start for start, end in spans)
    return found


def merged(spans: Sequence[Span]) -> list[Span]:
    """Without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def step_seconds(text: str) -> dict[str, tuple[float, float]]:
    """From the metrics page: by phase, (how many steps, seconds in all)."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "treadle:step_seconds":
            for sample in family.samples:
                phase = found.setdefault(sample.labels["phase"], {})
                phase[sample.name.rpartition("_")[2]] = sample.value
    return {phase: (x["count"], x["sum"]) for phase, x in found.items()}


def _busy(device: Sequence[Span], first: float, last: float) -> float:
    return sum(max(0.0, min(end, last) - max(start, first)) for start, end in device)


@contextmanager
def _decoding(server: Server) -> Iterator[None]:
    """Requests that decode while the block runs."""

    def ask(number: int) -> None:
        ids = np.random.default_rng(number).integers(0, TOKENIZER_IDS, PROMPT).tolist()
        sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": sampling}
        exchange(server.port, "POST", "/generate", orjson.dumps(body))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(CONCURRENT)]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        post(server.port, "/abort_request", {"abort_all": True})
        for thread in threads:
            thread.join()


def _processes(server: Server) -> dict[str, dict[str, float]]:
    """CPU time of each process by its title, and the parts of a step, over a window."""
    before, cpu = step_seconds(_metrics(server)), server.cpu_s()
    time.sleep(WINDOW_S)
    after, cpu_after = step_seconds(_metrics(server)), server.cpu_s()
    steps = after["run"][0] - before["run"][0]
    return {
        "cpu_us_per_step": {k: (cpu_after[k] - cpu[k]) / steps * 1e6 for k in cpu},
        "step_us": {k: (after[k][1] - before[k][1]) / steps * 1e6 for k in after},
        "window": {"steps": steps, "seconds": WINDOW_S},
    }


def _metrics(server: Server) -> str:
    return exchange(server.port, "GET", "/metrics")[1].decode()


def _trace(server: Server, folder: Path) -> Json:
    """Raises RuntimeError when none is written."""
    options = {"output_dir": str(folder), "profile_id": "p", "num_steps": PROFILED_STEPS}
    post(server.port, "/start_profile", options)
    deadline = time.monotonic() + TRACE_S
    while time.monotonic() < deadline:
        for path in folder.glob("*.json"):
            if data := path.read_bytes():
                try:
                    found: Json = orjson.loads(data)
                except orjson.JSONDecodeError:
                    continue  # it is being written
                return found
        time.sleep(0.1)
    raise RuntimeError("the profile left no trace")
