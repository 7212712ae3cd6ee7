"""Loads a checkpoint into a Runner in this process, as a worker would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import CacheSection, ModelSection, SchedSection, ServerConfig
from treadle.srt.host import HostFacts
from treadle.srt.nvidia import DeviceMemory
from treadle.srt.resolve import resolve
from treadle.srt.worker.runner import Runner

# The device is for tests that ask for it: the others say that they run on the CPU.
HOST = HostFacts(8 << 30, num_cores=1, seed=1)
WITH_DEVICE = replace(HOST, device=DeviceMemory(8 << 30, 8 << 30))
CACHE = CacheSection(memory_bytes=64 << 20, page_size=4)
SCHED = SchedSection(max_running=4, chunk_tokens=256)


def load_runner(
    path: Path,
    *,
    quantization: str = "none",
    cache: CacheSection = CACHE,
    override: str = "{}",
) -> Runner:
    model = ModelSection(path=str(path), quantization=quantization, override_args=override)
    facts = load_model_config(path, override)
    config = resolve(ServerConfig(model, cache, SCHED), facts, HOST)
    return Runner.load(config, facts, path, lambda done, total, label: None)


def small_cache(memory_bytes: int, page_size: int = 16) -> CacheSection:
    return replace(CACHE, memory_bytes=memory_bytes, page_size=page_size)
