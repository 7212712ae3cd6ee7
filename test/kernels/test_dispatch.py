"""The choice of a backend: the environment's word, the fallback, the log."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
import torch

from treadle.kernels import dispatch
from treadle.kernels.cpu import lib, norm
from treadle.kernels.dispatch import KernelUnavailable, backend, check_names, op
from treadle.kernels.reference.norm import rms_norm
from treadle.kernels.triton import device
from treadle.kernels.triton import norm as triton_norm


@pytest.fixture(autouse=True)
def fresh_choice():
    for choice in (backend, dispatch.wanted, device.device_name):
        choice.cache_clear()
    yield
    for choice in (backend, dispatch.wanted, device.device_name):
        choice.cache_clear()


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
    with pytest.raises(KernelUnavailable, match="'gpu'; it may be one of cpu, triton, reference"):
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


def test_triton_is_taken_when_asked_for(monkeypatch, caplog):
    monkeypatch.setenv("TREADLE_KERNELS", "triton")
    caplog.set_level(logging.DEBUG, dispatch.__name__)
    assert op(rms_norm, cpu="norm.rms_norm", triton="norm.rms_norm") is triton_norm.rms_norm
    assert op(rms_norm, cpu="norm.rms_norm") is rms_norm
    assert [r.message for r in caplog.records] == [
        f"kernels backend=triton device={device.device_name()}",
        "kernels operator=rms_norm backend=reference reason=no triton",
    ]


def test_triton_without_a_device_or_an_interpreter_is_refused(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KernelUnavailable, match="triton kernels need an NVIDIA device"):
        backend()


def test_one_operator_may_have_another_backend(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "triton,rms_norm=cpu")
    assert op(rms_norm, cpu="norm.rms_norm", triton="norm.rms_norm") is norm.rms_norm
    monkeypatch.setenv("TREADLE_KERNELS", "cpu,rms_norm=reference")
    dispatch.wanted.cache_clear()
    assert op(rms_norm, cpu="norm.rms_norm", triton="norm.rms_norm") is rms_norm


@pytest.mark.parametrize("text", ["triton,rms_norm=gpu", "triton,rms_norm"])
def test_unknown_backend_of_an_operator_is_refused(monkeypatch, text):
    monkeypatch.setenv("TREADLE_KERNELS", text)
    with pytest.raises(KernelUnavailable, match="it may be one of"):
        backend()


def test_unknown_operator_is_refused(monkeypatch):
    monkeypatch.setenv("TREADLE_KERNELS", "triton,norm=cpu")
    with pytest.raises(KernelUnavailable, match="there is no operator norm"):
        check_names(["rms_norm"])


DENSE = (  # what a step of a model with ordinary attention runs
    "add_rms_norm", "gelu_tanh_mul", "kv_write", "linear", "norm_add_rms_norm", "norm_rope",
    "paged_attention", "qk_norm_rope", "rms_norm", "rope", "silu_mul", "window_attention",
)  # fmt: skip


def test_no_operator_of_a_dense_step_runs_its_reference_on_a_device():
    tree = ast.parse(Path(dispatch.__file__).with_name("ops.py").read_text())
    with_triton = {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and "triton" in {x.arg for x in node.value.keywords}
    }
    assert set(DENSE) <= with_triton


def unavailable():
    raise KernelUnavailable(lib.BUILD_HINT)
