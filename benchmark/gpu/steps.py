"""Steps of a model in this process: decode and prefill, against the floors of the device."""

from __future__ import annotations

import statistics
import time

import torch
from benchmark.gpu.load import Requests, load
from torch.profiler import ProfilerActivity, profile

from treadle.srt.device import weight_bytes
from treadle.srt.worker.device_runner import DeviceRunner

DECODE_STEPS = 100
CONTEXT = 1024
PREFILL = 8192


def measure(name: str, ceilings: dict[str, float]) -> dict[str, object]:
    runner = load(name, running=64, kv_bytes=40 << 30, graphs=64, context=16384)
    facts = runner.base.config
    weights = weight_bytes(facts, "bfloat16")
    read = weights if facts.tie_embeddings else weights - facts.vocab_size * facts.hidden_size * 2
    floor_ms = read / ceilings["copy_bytes_per_s"] * 1e3
    result: dict[str, object] = {"weight_bytes": weights, "weight_floor_ms": floor_ms}
    for count in (1, 64):
        result[f"decode_{count}"] = _decode(runner, count, floor_ms)
    result[f"prefill_{PREFILL}"] = _prefill(runner, ceilings)
    result["kv"] = _kv_bytes(runner)
    result["memory_reserved_bytes"] = torch.cuda.memory_reserved()
    return result


def _decode(runner: DeviceRunner, count: int, floor_ms: float) -> dict[str, float]:
    """Steps in a row at a context of about `CONTEXT` tokens each."""
    requests = Requests(runner, count, CONTEXT + 5 * DECODE_STEPS)
    runner.launch(requests.prompt(CONTEXT)).result()
    requests.run(10)
    runs = [requests.run(DECODE_STEPS) for _ in range(3)]
    step_ms = statistics.median(x for x, _ in runs) * 1e3
    idle = _idle_share(requests)
    return {
        "step_ms": step_ms,
        "spread_ms": (max(x for x, _ in runs) - min(x for x, _ in runs)) * 1e3,
        "launch_ms": statistics.median(x for _, x in runs) * 1e3,
        "idle_share": idle,
        "tokens_per_s": count / step_ms * 1e3,
        "share_of_floor": floor_ms / step_ms,
    }


def _idle_share(requests: Requests) -> float:
    """Of a profiler's trace of steps in a row: time in which nothing runs on the device."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        requests.run(20)
    spans = sorted((e.time_range.start, e.time_range.end) for e in trace.events())
    busy, reached = 0.0, spans[0][0]
    for began, ended in spans:
        busy += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return 1.0 - busy / (reached - spans[0][0])


def _prefill(runner: DeviceRunner, ceilings: dict[str, float]) -> dict[str, float]:
    requests = Requests(runner, 1, PREFILL + 16)
    times = []
    for _ in range(5):
        plan = requests.prompt(PREFILL)
        torch.cuda.synchronize()
        began = time.perf_counter()
        runner.launch(plan).result()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times)
    flop = _flop(runner, PREFILL)
    return {
        "ms": seconds * 1e3,
        "spread_ms": (max(times[1:]) - min(times[1:])) * 1e3,
        "tokens_per_s": PREFILL / seconds,
        "flop": flop,
        "share_of_matmul": flop / seconds / ceilings["bf16_flop_per_s"],
    }


def _flop(runner: DeviceRunner, rows: int) -> float:
    """Of matrices of all layers and of attention, as far as it is seen; the head runs one row."""
    facts = runner.base.config
    width, kv = facts.num_heads * facts.head_dim, facts.num_kv_heads * facts.head_dim
    layer = (
        facts.hidden_size * (2 * width + 2 * kv) + 3 * facts.hidden_size * facts.intermediate_size
    )
    seen = rows * (rows + 1) / 2
    window = min(facts.window, rows)
    seen_window = rows * window - window * (window - 1) / 2
    pairs = len(facts.global_layers) * seen + len(facts.window_layers) * seen_window
    return 2.0 * rows * layer * len(facts.layers) + 4.0 * width * pairs


def _kv_bytes(runner: DeviceRunner) -> dict[str, object]:
    """What the pools take on the device against the layout's arithmetic."""
    facts, pools = runner.base.config, runner.base.engine.pools
    row = 2 * facts.num_kv_heads * facts.head_dim * 2
    pages, slots = pools.num_pages, runner.base.slots.page_table.shape[0]
    ring_rows = facts.window if facts.window_layers else 0
    arithmetic = pages * runner.base.page_size * len(facts.global_layers) * row
    arithmetic += slots * ring_rows * len(facts.window_layers) * row
    return {
        "token_bytes": len(facts.global_layers) * row,
        "slot_bytes": ring_rows * len(facts.window_layers) * row,
        "pool_bytes": pools.num_bytes,
        "arithmetic_bytes": arithmetic,
        "is_equal": pools.num_bytes == arithmetic,
    }
