"""What differs by device in a resolved configuration: defaults, memory, and what cannot run. Pure.

auto    the NVIDIA device, where there is one and the model has kernels for it; else the CPU
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .config import CacheSection, ModelSection, ParallelSection, ServerConfig
from .errors import ConfigError
from .host import HostFacts
from .loader.deepseek_v41_tensors import tensor_specs
from .loader.names import parameter_shapes
from .model_config import ModelConfig

CPU_BUDGET_BYTES = 2 << 30  # of pages and windows, at most
CPU_BUDGET_SHARE = 0.25  # of available memory, at most
CUDA_SHARE = 0.9  # of the device's free memory for weights, pages, windows and what steps need
CUDA_STEP_BYTES = 4 << 30  # rows of a chunk, logits and their sums in float64, graphs, libraries
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# Attention on each device, best first. `torch_native` is the reference: slow, on any device.
ATTENTION_BACKENDS = {"cpu": ("cpu", "torch_native"), "cuda": ("triton", "torch_native")}
ATTENTION_OPERATORS = (
    "paged_attention", "window_attention", "rotated_paged_attention", "rotated_window_attention",
)  # fmt: skip
NOT_HERE = {"flashinfer": "this version has no adapter for it"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Automatic values."""

    max_running: int
    chunk_tokens: int
    graph_batch: int  # largest captured decode step


LIMITS = {"cpu": Limits(16, 1024, 0), "cuda": Limits(256, 8192, 256)}


def choose_device(config: ServerConfig, model: ModelConfig, host: HostFacts) -> str:
    """ "cpu" or "cuda". Raises: ConfigError when the one that was asked for cannot run this."""
    asked, replicas = config.parallel.device, config.parallel.dp_size
    if asked == "cpu":
        return asked
    reason = _why_not_cuda(config, model, host)
    if reason and asked == "cuda":
        raise ConfigError(f"--device cuda: {reason}")
    if not reason and replicas > 1:
        raise ConfigError(
            f"--dp-size {replicas}: this version starts one replica on a GPU; start one command "
            "for each with CUDA_VISIBLE_DEVICES and a router, or say --device cpu"
        )
    return "cpu" if reason else "cuda"


def _why_not_cuda(config: ServerConfig, model: ModelConfig, host: HostFacts) -> str:
    if not host.device.total:
        return "the driver shows no NVIDIA device"
    if model.latent is not None and config.sched.speculation != "none":
        return f"--speculative-algorithm {config.sched.speculation} runs on the CPU only"
    if config.model.quantization == "q8_0":
        return "--quantization q8_0 has kernels for the CPU only; take none"
    return ""


def notes(asked: ServerConfig, model: ModelConfig, host: HostFacts, device: str) -> list[str]:
    """What an operator should hear of the choice of `device`: why a GPU that is there is left
    alone, and flags that do nothing here."""
    found, parallel = [], asked.parallel
    if parallel.device == "auto" and device == "cpu" and host.device.total:
        found.append(f"the GPU is not used: {_why_not_cuda(asked, model, host)}")
    if device == "cpu" and parallel.graph_batch > 0:
        found.append("--cuda-graph-max-bs-decode does nothing on the CPU")
    return found


def choose_attention(section: ParallelSection, model: ModelConfig, device: str) -> str:
    """The backend of attention. Raises: ConfigError for one that this device does not have."""
    asked = section.attention_backend
    known: tuple[str, ...] = ATTENTION_BACKENDS[device]
    if model.latent is not None:  # its operators are others, with one backend a device
        known = known[:1]
    if asked in ("auto", *known):
        return known[0] if asked == "auto" else asked
    reason = NOT_HERE.get(asked, f"not on --device {device}")
    raise ConfigError(f"--attention-backend {asked}: {reason}; it may be {' or '.join(known)}")


def choose_graphs(
    section: ParallelSection, model: ModelConfig, device: str, max_running: int
) -> int:
    """The largest captured decode step, in requests; 0 for none. Raises: ConfigError when some are
    asked for of a model whose steps cannot be captured: how much they read depends on requests."""
    if device == "cuda" and model.latent is not None:
        if section.graph_batch > 0:
            raise ConfigError(
                f"--cuda-graph-max-bs-decode {section.graph_batch}: this version captures no steps "
                f"of {model.architecture}; leave it out"
            )
        return 0
    asked, why_not = section.graph_batch, ""
    if not section.cuda_graph:
        why_not = "--disable-cuda-graph"
    elif section.attention_backend == "torch_native":
        why_not = "--attention-backend torch_native, which cannot be captured"
    if device == "cuda" and asked > 0 and why_not:
        raise ConfigError(f"--cuda-graph-max-bs-decode {asked} excludes {why_not}")
    if device == "cpu" or why_not:
        return 0
    return min(max_running, LIMITS[device].graph_batch if asked < 0 else asked)


def kernels_of(section: ParallelSection) -> str:
    """`TREADLE_KERNELS` of a worker; "" leaves the choice to it. `section` is resolved."""
    first = "triton" if section.device == "cuda" else ""
    if section.attention_backend != "torch_native":
        return first
    return ",".join([first or "cpu", *(f"{x}=reference" for x in ATTENTION_OPERATORS)])


def choose_dtypes(model: ModelSection, cache: CacheSection, device: str) -> tuple[str, str]:
    """Of arithmetic, and of keys and values, for models with ordinary attention."""
    dtype = model.dtype
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    if cache.kv_dtype != "auto":
        return dtype, cache.kv_dtype
    return dtype, "bfloat16" if device == "cuda" and dtype != "float32" else "float32"


def cuda_budget(cache: CacheSection, model: ModelConfig, dtype: str, host: HostFacts) -> int:
    """Bytes of pages and windows. `--mem-fraction-static` counts weights too. Raises: ConfigError
    when the weights leave nothing."""
    weights = weight_bytes(model, dtype)
    if cache.memory_fraction > 0:
        budget = int(host.device.total * cache.memory_fraction) - weights
    else:
        budget = int(host.device.free * CUDA_SHARE) - weights - CUDA_STEP_BYTES
    if budget <= 0:
        raise ConfigError(
            f"the GPU has {host.device.free} of {host.device.total} bytes free; {weights} bytes of "
            "weights and what steps need leave none for pages (--mem-fraction-static, --device cpu)"
        )
    return budget


def weight_bytes(model: ModelConfig, dtype: str) -> int:
    if model.latent is not None:
        return latent_bytes(model)
    shapes = parameter_shapes(model).values()
    return sum(map(math.prod, shapes)) * ELEMENT_BYTES[dtype]


def latent_bytes(model: ModelConfig) -> int:
    """Of DeepSeek-V4.1's weights as they are held: packed ones as in the files, others in float32.
    Without its tables, which stay on the host, and its draft head."""
    specs = tensor_specs(model).items()
    kept = [x for name, x in specs if ".engram.embed." not in name and not name.startswith("mtp.")]
    return sum(math.prod(x.shape) * (4 if x.dtypes[0] in ("F32", "BF16") else 1) for x in kept)


def cpu_budget(cache: CacheSection, host: HostFacts) -> int:
    if cache.memory_fraction > 0:
        return int(host.available_bytes * cache.memory_fraction)
    return min(int(host.available_bytes * CPU_BUDGET_SHARE), CPU_BUDGET_BYTES)
