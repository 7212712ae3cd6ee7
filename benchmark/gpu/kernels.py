"""Times of the Triton kernels of dense models, each against the ceiling that it is bound by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from benchmark.gpu.measure import in_graph, milliseconds
from torch import Tensor

from treadle.kernels import ops

EPS = 1e-6
PAGE = 16
SPREAD_BYTES = 300e6  # of inputs that take turns, so that caches do not hold the next one's


@dataclass(frozen=True, slots=True)
class Case:
    """`run` is one of several calls on inputs of their own. `num_bytes` read and written, or `flop`
    where arithmetic binds."""

    name: str
    calls: Sequence[Callable[[], object]]
    num_bytes: float = 0.0
    flop: float = 0.0


def measure(ceilings: dict[str, float]) -> dict[str, dict[str, float]]:
    return {case.name: _time(case, ceilings) for make in MAKERS for case in make()}


def _time(case: Case, ceilings: dict[str, float]) -> dict[str, float]:
    turn = [0]

    def run() -> None:
        case.calls[turn[0] % len(case.calls)]()
        turn[0] += 1

    if case.flop:
        ms = milliseconds(case.calls[0], 10)
        rate = case.flop / ms * 1e3
        share = rate / ceilings["bf16_flop_per_s"]
        return {"us": ms * 1e3, "tflop_per_s": rate / 1e12, "share_of_ceiling": share}
    ms = in_graph(run, max(8, len(case.calls)))
    rate = case.num_bytes / ms * 1e3
    share = rate / ceilings["copy_bytes_per_s"]
    return {"us": ms * 1e3, "gb_per_s": rate / 1e9, "share_of_ceiling": share}


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def _copies(num_bytes: float) -> int:
    return max(2, int(SPREAD_BYTES / num_bytes) + 1)


def _rowwise() -> list[Case]:
    cases = []
    for rows in (1, 64, 8192):
        x, residual, gate_up = _noise(rows, 2560), _noise(rows, 2560), _noise(rows, 20480)
        weight = torch.rand(2560, device="cuda")
        q, k = _noise(rows, 8, 256), _noise(rows, 4, 256)
        norm = ops.QkNorm(weight[:256], weight[:256], EPS)
        table, at = torch.rand(9000, 256, device="cuda"), torch.arange(rows, device="cuda")
        norm_run = partial(ops.norm_add_rms_norm, x, residual, weight, weight, EPS)
        gate_run = partial(ops.gelu_tanh_mul, gate_up)
        rope_run = partial(ops.qk_norm_rope, q, k, norm, at, table)
        cases += [
            Case(f"norm_add_rms_norm {rows}x2560", [norm_run], 4 * x.nbytes),
            Case(f"gelu_tanh_mul {rows}x10240", [gate_run], 1.5 * gate_up.nbytes),
            Case(f"qk_norm_rope {rows}x12x256", [rope_run], 2 * (q.nbytes + k.nbytes)),
        ]
    return cases


def _linear() -> list[Case]:
    cases = []
    for features, inputs in ((4096, 2560), (2560, 2048), (20480, 2560), (2560, 10240)):
        num_bytes = features * inputs * 2
        weights = [_noise(features, inputs) for _ in range(_copies(num_bytes))]
        x = _noise(1, inputs)
        ours = [partial(ops.linear, x, w) for w in weights]
        theirs = [partial(F.linear, x, w) for w in weights]
        name = f"linear 1x{inputs} to {features}"
        cases += [Case(name, ours, num_bytes), Case(f"{name}, library", theirs, num_bytes)]
    num_bytes = 20480 * 2560 * 2
    weights = [_noise(20480, 2560) for _ in range(_copies(num_bytes))]
    x = _noise(1, 2560)
    gated = [partial(ops.gelu_tanh_linear, x, w) for w in weights]
    return [*cases, Case("gelu_tanh_linear 1x2560 to 2x10240", gated, num_bytes)]


def _decode() -> list[Case]:
    """Attention of single rows at a context of 1,024 tokens."""
    cases = []
    for rows, heads, kv_heads, size in (
        (1, 8, 4, 256),
        (64, 8, 4, 256),
        (1, 32, 8, 128),
        (64, 32, 8, 128),
    ):
        context, scale = 1024, size**-0.5
        num_bytes = rows * context * kv_heads * size * 4
        q = _noise(rows, heads, size)
        pages, rings = [], []
        for _ in range(_copies(num_bytes)):
            pages.append(_paged_call(q, kv_heads, context, scale))
            rings.append(_window_call(q, kv_heads, context, scale))
        kind = f"{rows} rows, {heads}/{kv_heads} heads of {size}, context {context}"
        cases.append(Case(f"paged_attention {kind}", pages, num_bytes))
        rotated = [_rotated_call(q, kv_heads, context) for _ in range(_copies(num_bytes))]
        cases.append(Case(f"rotated_paged_attention {kind}", rotated, num_bytes))
        if size == 256:
            cases.append(Case(f"window_attention {kind}", rings, num_bytes))
    return cases


def _paged_call(q: Tensor, kv_heads: int, context: int, scale: float) -> Callable[[], object]:
    rows, _, size = q.shape
    each = context // PAGE
    k, v = (_noise(rows * each + 1, PAGE, kv_heads, size) for _ in range(2))
    table = torch.zeros(rows + 1, 1024, device="cuda", dtype=torch.int32)
    table[1:, :each] = 1 + torch.randperm(rows * each, device="cuda").view(rows, each)
    runs = torch.tensor([[i + 1, i, 1, context - 1] for i in range(rows)], device="cuda")
    return partial(ops.paged_attention, q, k, v, table, runs, scale)


def _rotated_call(q: Tensor, kv_heads: int, context: int) -> Callable[[], object]:
    """From the projection on: norm, rotation and write too."""
    rows, _, size = q.shape
    each, last = context // PAGE, context - 1
    pool = [_noise(rows * each + 1, PAGE, kv_heads, size) for _ in range(2)]
    table = torch.zeros(rows + 1, 1024, device="cuda", dtype=torch.int32)
    table[1:, :each] = 1 + torch.randperm(rows * each, device="cuda").view(rows, each)
    runs = torch.tensor([[i + 1, i, 1, last] for i in range(rows)], device="cuda")
    dst = table[1:, each - 1].long() * PAGE + last % PAGE
    weight, at = torch.rand(size, device="cuda"), torch.full((rows,), last, device="cuda")
    norm = ops.QkNorm(weight, weight, EPS)
    rotation = ops.Rotation(at, torch.rand(context, size, device="cuda"), norm)
    keys = ops.PagedKeys(pool[0], pool[1], dst, table, runs)
    k, v = (_noise(rows, kv_heads, size) for _ in range(2))
    return partial(ops.rotated_paged_attention, q, k, v, rotation, keys, size**-0.5)


def _window_call(q: Tensor, kv_heads: int, window: int, scale: float) -> Callable[[], object]:
    rows, _, size = q.shape
    k, v = (_noise(rows, kv_heads, size) for _ in range(2))
    ring_k, ring_v = (_noise(rows + 1, window, kv_heads, size) for _ in range(2))
    held = torch.arange(window, device="cuda") + window * 3
    held[0] = window * 4  # the ring is full of what the row at window * 4 + 1 sees
    tags = held[None].repeat(rows + 1, 1).contiguous()
    runs = torch.tensor(
        [[i + 1, i, 1, i, 1, window * 4 + 1, 0] for i in range(rows)], device="cuda"
    )
    return partial(
        ops.window_attention, q, k, v, ring_k, ring_v, tags, runs, window=window, scale=scale
    )


def _prefill() -> list[Case]:
    """A cold prompt of 8,192 rows."""
    rows, cases = 8192, []
    for heads, kv_heads, size in ((32, 8, 128), (8, 4, 256)):
        q = _noise(rows, heads, size)
        k, v = (_noise(rows // PAGE + 1, PAGE, kv_heads, size) for _ in range(2))
        table = torch.arange(1, rows // PAGE + 1, device="cuda", dtype=torch.int32)[None]
        runs = torch.tensor([[0, 0, rows, 0]], device="cuda")
        call = partial(ops.paged_attention, q, k, v, table, runs, size**-0.5)
        name = f"paged_attention prefill {rows}, {heads}/{kv_heads} heads of {size}"
        cases.append(Case(name, [call], flop=2.0 * heads * size * rows * rows))
    return cases


MAKERS = (_rowwise, _linear, _decode, _prefill)
