"""What a configuration becomes where there is a GPU, and what is refused there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.srt.test_resolve import GEMMA, GIB, HOST, LLAMA, config
from test.v41 import CHECKPOINTS, loaded
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import ParallelSection
from treadle.srt.device import kernels_of, notes, weight_bytes
from treadle.srt.errors import ConfigError
from treadle.srt.models.held import held_bytes
from treadle.srt.nvidia import DeviceMemory
from treadle.srt.resolve import resolve

REFERENCE_ATTENTION = (
    ",paged_attention=reference,window_attention=reference"
    ",rotated_paged_attention=reference,rotated_window_attention=reference"
)
V41 = load_model_config(CHECKPOINTS / "v41-nano")
GPU = replace(HOST, device=DeviceMemory(140 * GIB, 139 * GIB))


@pytest.mark.parametrize("facts", [GEMMA, LLAMA], ids=["gemma", "llama"])
def test_a_gpu_is_taken_where_there_is_one(facts):
    got = resolve(config(), facts, GPU)
    assert (got.parallel.device, got.parallel.attention_backend) == ("cuda", "triton")
    assert (got.model.dtype, got.cache.kv_dtype, got.model.quantization) == (
        "bfloat16", "bfloat16", "none",
    )  # fmt: skip
    assert (got.sched.max_running, got.parallel.graph_batch) == (256, 256)
    assert got.sched.chunk_tokens >= 8192
    assert 100 * GIB < got.cache.memory_bytes < 139 * GIB
    assert resolve(got, facts, GPU) == got


def test_the_cpu_is_taken_when_it_is_asked_for_or_nothing_else_is_there():
    for asked, host in (("cpu", GPU), ("auto", HOST)):
        got = resolve(config(parallel={"device": asked}), LLAMA, host)
        assert (got.parallel.device, got.parallel.attention_backend) == ("cpu", "cpu")
        assert got.parallel.graph_batch == 0


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("model", {"quantization": "q8_0"}, "--device cuda: --quantization q8_0"),
        ("parallel", {"attention_backend": "flashinfer"}, "--attention-backend flashinfer: this"),
        ("parallel", {"attention_backend": "cpu"}, "it may be triton or torch_native"),
        ("parallel", {"dp_size": 2}, "--dp-size 2: this version starts one replica on a GPU"),
        ("parallel", {"graph_batch": -2}, "--cuda-graph-max-bs-decode -2: must be from 0"),
    ],
)
def test_what_a_gpu_cannot_run_is_refused(section: str, values: dict[str, object], words: str):
    parallel = {"device": "cuda"} | (values if section == "parallel" else {})
    asked = config(**{section: values} | {"parallel": parallel})
    with pytest.raises(ConfigError, match=words):
        resolve(asked, LLAMA, GPU)


def test_triton_attention_is_refused_on_the_cpu():
    asked = config(parallel={"attention_backend": "triton", "device": "cpu"})
    with pytest.raises(ConfigError, match="--attention-backend triton: not on --device cpu"):
        resolve(asked, LLAMA, HOST)


@pytest.mark.parametrize(
    ("values", "largest"),
    [
        ({}, 256),
        ({"graph_batch": 8}, 8),
        ({"cuda_graph": False}, 0),
        ({"attention_backend": "torch_native"}, 0),
        ({"graph_batch": 1000}, 300),
    ],
)
def test_graphs_are_no_larger_than_what_runs(values: dict[str, object], largest: int):
    asked = config(parallel={"device": "cuda"} | values, sched={"max_running": 300})
    assert resolve(asked, LLAMA, GPU).parallel.graph_batch == largest


def test_fraction_counts_weights_and_pages():
    asked = config(cache={"memory_fraction": 0.5})
    got = resolve(asked, LLAMA, GPU).cache.memory_bytes
    assert got == 70 * GIB - weight_bytes(LLAMA, "bfloat16")


@pytest.mark.parametrize(
    ("device", "attention", "kernels"),
    [
        ("cpu", "cpu", ""),
        ("cuda", "triton", "triton"),
        ("cuda", "torch_native", "triton" + REFERENCE_ATTENTION),
        ("cpu", "torch_native", "cpu" + REFERENCE_ATTENTION),
    ],
)
def test_kernels_follow_from_device_and_attention(device: str, attention: str, kernels: str):
    section = ParallelSection(device=device, attention_backend=attention)
    assert kernels_of(section) == kernels


def test_a_model_with_latents_runs_on_a_gpu_without_graphs():
    got = resolve(config(), V41, GPU)
    assert (got.parallel.device, got.parallel.graph_batch, got.cache.kv_dtype) == ("cuda", 0, "fp4")
    assert resolve(got, V41, GPU) == got
    with pytest.raises(ConfigError, match="--cuda-graph-max-bs-decode 8: this version captures no"):
        resolve(config(parallel={"graph_batch": 8}), V41, GPU)
    drafts = config(sched={"speculation": "dspark"}, parallel={"device": "cuda"})
    with pytest.raises(ConfigError, match="--speculative-algorithm dspark runs on the CPU only"):
        resolve(drafts, V41, GPU)


def test_weights_of_a_model_with_latents_are_counted_as_they_are_held():
    """All but the tables, which stay on the host: what the loaded modules hold."""
    decoder = loaded("v41-nano", False).model
    held = held_bytes(decoder)
    assert abs(weight_bytes(V41, "bfloat16") - held) < 0.1 * held


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuda_graph": False}, "excludes --disable-cuda-graph"),
        ({"attention_backend": "torch_native"}, "excludes --attention-backend torch_native"),
    ],
)
def test_graphs_that_are_asked_for_are_not_dropped(values: dict[str, object], words: str):
    asked = config(parallel={"device": "cuda", "graph_batch": 8} | values)
    with pytest.raises(ConfigError, match=f"--cuda-graph-max-bs-decode 8 {words}"):
        resolve(asked, LLAMA, GPU)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_attention_of_latents_has_one_backend(device: str):
    asked = config(parallel={"device": device, "attention_backend": "torch_native"})
    with pytest.raises(ConfigError, match="--attention-backend torch_native: not on --device"):
        resolve(asked, V41, GPU)


def test_a_gpu_that_weights_fill_is_refused_by_their_size():
    small = replace(HOST, device=DeviceMemory(GIB, GIB))
    with pytest.raises(ConfigError, match=f"{weight_bytes(LLAMA, 'bfloat16')} bytes of weights"):
        resolve(config(parallel={"device": "cuda"}), LLAMA, small)


@pytest.mark.parametrize(
    ("values", "host", "words"),
    [
        ({"model": {"quantization": "q8_0"}}, GPU, "the GPU is not used: --quantization q8_0"),
        ({"parallel": {"graph_batch": 8}}, HOST, "--cuda-graph-max-bs-decode does nothing"),
    ],
)
def test_an_operator_hears_what_the_choice_of_device_leaves_out(values, host, words: str):
    asked = config(**values)
    device = resolve(asked, LLAMA, host).parallel.device
    (note,) = notes(asked, LLAMA, host, device)
    assert device == "cpu" and words in note
    assert notes(config(), LLAMA, host, "cuda" if host is GPU else "cpu") == []
