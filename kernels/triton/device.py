"""Whether Triton kernels can run in this process, and on what.

They run on an NVIDIA device, or anywhere under Triton's interpreter (`TRITON_INTERPRET=1`, set
before the kernels are imported), which is how they are tested on the CPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os

import torch

from ..dispatch import KernelUnavailable


def is_interpreted() -> bool:
    """Whether kernels are run by the interpreter, on tensors of any device."""
    return os.environ.get("TRITON_INTERPRET", "") in ("1", "true", "on")


@functools.cache
def device_name() -> str:
    """What kernels run on. Raises `KernelUnavailable` where they cannot."""
    if importlib.util.find_spec("triton") is None:
        raise KernelUnavailable("the package triton is not installed; install treadle[gpu]")
    if is_interpreted():
        importlib.import_module(".interpreter", __package__).mend()
        return "interpreter"
    if not torch.cuda.is_available():
        built = torch.version.cuda
        reason = "no device" if built else "a build of torch without CUDA"
        raise KernelUnavailable(f"triton kernels need an NVIDIA device; torch finds {reason}")
    return torch.cuda.get_device_name().replace(" ", "_")


@functools.cache
def num_processors() -> int:
    """Multiprocessors of the device; a small number under the interpreter."""
    if is_interpreted():
        return 4
    return int(torch.cuda.get_device_properties(0).multi_processor_count)
