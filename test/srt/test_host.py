"""Machine facts from made-up /sys and cgroup trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.srt.host import cpu_quota, memory_left, physical_cores, read_host_facts


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_siblings_of_one_core_count_once(tmp_path: Path):
    name = "cpu{}/topology/thread_siblings_list"
    files = {name.format(cpu): f"{cpu % 2},{cpu % 2 + 2}" for cpu in range(4)}
    cpus = write(tmp_path, files)
    assert physical_cores(cpus, {0, 1, 2, 3}) == 2
    assert physical_cores(cpus, {0, 2}) == 1
    assert physical_cores(cpus, {3}) == 1


def test_cpus_without_topology_are_cores(tmp_path: Path):
    assert physical_cores(tmp_path, {0, 5, 6}) == 3


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 1 << 16),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 1 << 16),
        ({}, 1 << 16),
    ],
)
def test_cpu_quota_is_rounded_up(tmp_path: Path, files: dict[str, str], expected: int):
    assert cpu_quota(write(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "1000", "memory.current": "300"}, 700),
        ({"memory.max": "1000", "memory.current": "1300"}, 0),
        ({"memory.max": "max", "memory.current": "300"}, 1 << 62),
        ({"memory/memory.limit_in_bytes": "9", "memory/memory.usage_in_bytes": "2"}, 7),
        ({}, 1 << 62),
    ],
)
def test_memory_below_the_limit_of_the_group(tmp_path: Path, files: dict[str, str], expected: int):
    assert memory_left(write(tmp_path, files)) == expected


def test_this_machine_has_something():
    facts = read_host_facts()
    assert facts.num_cores >= 1
    assert facts.available_bytes > 0
    assert facts.seed >= 0
