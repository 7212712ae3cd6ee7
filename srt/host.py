"""What this machine grants us: memory, cores, a device and entropy. Reads `/proc`, `/sys`, cgroups
and the driver; the one impure input of `resolve`.
"""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from .nvidia import DeviceMemory, read_device_memory

NO_DEVICE = DeviceMemory()
CGROUP = Path("/sys/fs/cgroup")
CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """`num_cores`: physical cores that this process may use. `seed`: a fresh random number.
    `device`: memory of the NVIDIA device, zero without one or with a torch that has no CUDA."""

    available_bytes: int
    num_cores: int
    seed: int
    device: DeviceMemory = NO_DEVICE

    def share(self, count: int) -> HostFacts:
        """What each of `count` equal servers may take; the seed is every one's own already."""
        cores, memory = max(1, self.num_cores // count), self.available_bytes // count
        return HostFacts(memory, cores, self.seed, self.device)


def read_host_facts() -> HostFacts:
    return HostFacts(
        available_bytes=min(psutil.virtual_memory().available, memory_left(CGROUP)),
        num_cores=max(1, min(physical_cores(CPUS, os.sched_getaffinity(0)), cpu_quota(CGROUP))),
        seed=secrets.randbits(31),
        device=NO_DEVICE if version("torch").endswith("+cpu") else read_device_memory(),
    )


def physical_cores(cpus: Path, allowed: set[int]) -> int:
    """Cores behind the CPUs of `allowed`: siblings of one core have the same list of siblings."""
    cores = set()
    for cpu in allowed:
        cores.add(_read(cpus / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu))
    return len(cores)


def cpu_quota(cgroup: Path) -> int:
    """CPUs that the control group grants, rounded up; a large number without a limit."""
    words = _read(cgroup / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        return math.ceil(int(words[0]) / int(words[1]))
    quota, period = (_read(cgroup / f"cpu/cpu.cfs_{x}_us") for x in ("quota", "period"))
    if quota and period and int(quota) > 0:
        return math.ceil(int(quota) / int(period))
    return 1 << 16


def memory_left(cgroup: Path) -> int:
    """Bytes below the control group's limit; a large number without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        words = _read(cgroup / limit), _read(cgroup / used)
        if all(word.isdigit() for word in words):
            return max(0, int(words[0]) - int(words[1]))
    return 1 << 62


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
