"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib
import os

import pytest
from hypothesis import HealthCheck, settings

# Small matrices on a busy machine: a second OpenMP thread costs a barrier and buys nothing. Set
# before torch is imported; tests of threading raise it themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a device Triton's interpreter runs the kernels. It is asked for before they are imported.
if not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# How long an example takes says how busy the machine is; and every run draws the same examples, so
# that a change fails for what it did. `--hypothesis-profile search` draws others.
PROFILE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", PROFILE)
settings.register_profile("treadle", PROFILE, derandomize=True)
settings.load_profile("treadle")


@pytest.fixture
def reference_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator runs its torch reference, whatever backend this process has bound."""
    from treadle.kernels import ops

    references = importlib.import_module("treadle.kernels.reference")
    for name in ops.__all__:
        for path in references.__path__:
            _bind_reference(monkeypatch, ops, path, name)


def _bind_reference(monkeypatch: pytest.MonkeyPatch, ops: object, path: str, name: str) -> None:
    from pathlib import Path

    for file in sorted(Path(path).glob("*.py")):
        module = importlib.import_module(f"treadle.kernels.reference.{file.stem}")
        function = vars(module).get(name)
        if function is not None and getattr(function, "__module__", "") == module.__name__:
            monkeypatch.setattr(ops, name, function)
            return
