"""Fixtures of the operator tests."""

from __future__ import annotations

import ctypes
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.kernels.cpu import lib


@pytest.fixture
def cpu_isa(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The adapters run on the instruction set that the test asks for."""
    return _use_isa(request.param, tmp_path, monkeypatch)


@pytest.fixture(params=["portable", "avx2", "avx512", "amx"])
def isa(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The row-wise and linear adapters run on each instruction set this processor has."""
    return _use_isa(request.param, tmp_path, monkeypatch)


@pytest.fixture
def use_isa() -> Callable[[str, Path, pytest.MonkeyPatch], str]:
    """For a test that compares instruction sets: the function behind `isa`."""
    return _use_isa


def _use_isa(wanted: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Point the adapters at a copy of the library that chose `wanted`, or skip the test.

    A library chooses once, when it is first called; a copy chooses anew.
    """
    monkeypatch.setenv("TREADLE_CPU_ISA", wanted)
    library = ctypes.CDLL(str(shutil.copy(lib.library()._name, folder / f"{wanted}.so")))
    library.treadle_isa.restype = ctypes.c_char_p
    if library.treadle_isa().decode() != wanted:
        pytest.skip(f"this processor has no {wanted}")
    for module_name, names in ADAPTERS.items():
        module = importlib.import_module(f"treadle.kernels.cpu.{module_name}")
        for name in names:
            bound = vars(module)[f"_{name}"]
            function = library[f"treadle_{name}"]
            function.argtypes, function.restype = bound.argtypes, bound.restype
            monkeypatch.setattr(module, f"_{name}", function)
    return wanted


ADAPTERS = {
    "linear": ("linear_q8",),
    "quant": ("pack_q8", "q8_rows"),
    "norm": ("rms_norm", "add_rms_norm"),
    "rope": ("norm_rope",),
    "activation": ("gated",),
    "block_float": ("encode_rows", "decode_rows", "round_rows"),
    "hyper": ("hyper_weights", "hyper_collapse", "hyper_expand"),
    "engram": ("engram_gate",),
    "compressor": ("pool_pairs",),
    "moe": ("route", "clamped_swiglu", "moe_experts"),
    "packed_linear": ("linear_packed",),
    "indexer": ("index_scores", "select_entries", "candidate_blocks"),
    "latent_attention": ("latent_attention",),
    "rope_pairs": ("rope_pairs",),
    "kv_write": ("kv_write",),
    "paged_attention": ("paged_attention",),
    "window_attention": ("window_attention",),
}
