"""The choice of a backend: the environment's word, the fallback, the log."""

from __future__ import annotations

import logging

import pytest

from treadle.kernels import dispatch
from treadle.kernels.cpu import lib, norm
from treadle.kernels.dispatch import KernelUnavailable, backend, op
from treadle.kernels.reference.norm import rms_norm


@pytest.fixture(autouse=True)
def fresh_choice():
    backend.cache_clear()
    yield
    backend.cache_clear()


def test_cpu_is_chosen_where_its_library_loads(monkeypatch, caplog):
    monkeypatch.delenv("TREADLE_KERNELS", raising=False)
    caplog.set_level(logging.INFO, dispatch.__name__)
    assert op(rms_norm, cpu="norm.rms_norm") is norm.rms_norm
    assert op(rms_norm) is rms_norm
    assert [r.message for r in caplog.records] == [f"kernels backend=cpu isa={lib.isa()}"]


def test_environment_asks_for_the_reference(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "reference")
    assert op(rms_norm, cpu="norm.rms_norm") is rms_norm


def test_unknown_backend_is_refused(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "gpu")
    with pytest.raises(KernelUnavailable, match="'gpu'; it may be one of cpu, reference"):
        backend()


def test_missing_library_means_reference_and_is_said_once(monkeypatch, caplog):
    monkeypatch.delenv("TREADLE_KERNELS", raising=False)
    monkeypatch.setattr(lib, "library", unavailable)
    assert op(rms_norm, cpu="norm.rms_norm") is rms_norm
    assert op(rms_norm, cpu="norm.rms_norm") is rms_norm
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "treadle.kernels.cpu.build" in caplog.text


def test_missing_library_that_was_asked_for_is_an_error(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "cpu")
    monkeypatch.setattr(lib, "library", unavailable)
    with pytest.raises(KernelUnavailable):
        backend()


def unavailable():
    raise KernelUnavailable(lib.BUILD_HINT)
