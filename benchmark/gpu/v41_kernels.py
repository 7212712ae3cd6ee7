"""Kernels of DeepSeek-V4.1 at the released layer shapes, on a device.

    TREADLE_KERNELS=triton python -m benchmark.gpu.v41_kernels [--out FILE]

One table and one JSON file: time of a call, the bytes and operations that it must move and do, and
which fraction of the device's measured copy and bf16 matrix rates that is. Values are random;
experts are 64 of the 384, requests have 32,768 tokens.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmark.environment import Environment
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import (
    Choice,
    Experts,
    HyperMatrix,
    MatrixKind,
    PackedMatrix,
    Pages,
    Rings,
    RowKind,
)

HIDDEN, STREAMS, HEADS, SIZE, Q_RANK, WINDOW = 5120, 4, 64, 512, 1280, 128
INDEX_HEADS, INDEX_SIZE, CHOSEN = 32, 128, 512
EXPERTS, INNER, EACH = 64, 2304, 6
CONTEXT, PER_PAGE, RATIO = 32768, 64, 1
ROWS = (1, 64, 2048)
DEVICE = torch.device("cuda")
COPY_BYTES, MATRIX = 1 << 31, 8192
SPOILED_BYTES, CALLS = 256 << 20, 4


@dataclass(frozen=True, slots=True)
class Case:
    """`num_bytes` and `num_flops` are the least that the operator could do."""

    name: str
    rows: int
    run: Callable[[], object]
    num_bytes: int
    num_flops: int = 0


@dataclass(frozen=True, slots=True)
class Ceilings:
    bytes_per_s: float
    flops_per_s: float

    @classmethod
    def measure(cls) -> Ceilings:
        source = normal(COPY_BYTES // 4)
        target = torch.empty_like(source)
        copied = seconds(lambda: torch.neg(source, out=target))  # a kernel: graphs copy otherwise
        a, b = (torch.randn(MATRIX, MATRIX, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        multiplied = seconds(lambda: a @ b)
        return cls(2 * COPY_BYTES / copied, 2 * MATRIX**3 / multiplied)


def seconds(run: Callable[[], object], num_runs: int = 7) -> float:
    """Median device time of a call whose inputs are in no cache: graphs of calls with a large write
    before each, less the time of the writes alone."""
    spoiler = torch.empty(SPOILED_BYTES, dtype=torch.uint8, device=DEVICE)

    def with_spoiler() -> None:
        spoiler.zero_()
        run()

    with_spoiler()
    torch.cuda.synchronize()
    return _replayed(with_spoiler, num_runs) - _replayed(spoiler.zero_, num_runs)


def _replayed(run: Callable[[], object], num_runs: int) -> float:
    """Of one of `CALLS` calls in a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    times = []
    for _ in range(num_runs + 1):
        begin, end = (_event() for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) / 1e3 / CALLS)
    return sorted(times[1:])[num_runs // 2]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def random_bytes(*shape: int) -> Tensor:
    """None of them the code of not-a-number."""
    return torch.randint(0, 256, shape, device=DEVICE, dtype=torch.uint8) & 0xFE


def matrix(kind: MatrixKind, features: int, inputs: int) -> PackedMatrix:
    blocks = features // 16
    if kind is MatrixKind.FLOAT32:
        data = normal(blocks, inputs, 16)
        return PackedMatrix(kind, data, None, features, inputs)
    num_bytes = inputs if kind is MatrixKind.FP8 else inputs // 2
    scales = torch.randint(115, 121, (blocks, inputs // 32, 16), device=DEVICE, dtype=torch.uint8)
    return PackedMatrix(kind, random_bytes(blocks, num_bytes, 16), scales, features, inputs)


def held(w: PackedMatrix) -> int:
    return w.data.nbytes + (0 if w.scales is None else w.scales.nbytes)


def small_cases(rows: int) -> Iterator[Case]:
    """Everything that goes over rows once."""
    latent, streams, pre = normal(rows, SIZE), normal(rows, STREAMS, HIDDEN), normal(rows, STREAMS)
    kind = RowKind.NVFP4
    packed = rows * (SIZE * 4 + kind.row_bytes(SIZE))
    yield Case("encode_rows fp4", rows, lambda: ops.encode_rows(latent, kind), packed)
    window = rows * (SIZE * 4 + RowKind.FP8.row_bytes(SIZE))
    yield Case("encode_rows fp8", rows, lambda: ops.encode_rows(latent, RowKind.FP8), window)
    q, positions = normal(rows, HEADS, SIZE), torch.arange(rows, device=DEVICE)
    frequencies = torch.rand(32, device=DEVICE)
    yield Case("rope_pairs", rows, lambda: ops.rope_pairs(q, positions, frequencies), 2 * q.nbytes)
    fn, base, scale = normal(24, STREAMS * HIDDEN) / 100, normal(24), normal(3)
    mixer = HyperMatrix(fn, base, scale, 20, 1e-20, 1e-6)
    size = streams.nbytes
    flops = 2 * 24 * STREAMS * HIDDEN * rows
    yield Case("hyper_weights", rows, lambda: ops.hyper_weights(streams, mixer), size, flops)
    collapsed = size * 5 // 4
    yield Case("hyper_collapse", rows, lambda: ops.hyper_collapse(streams, pre), collapsed)
    y, comb = normal(rows, HIDDEN), normal(rows, STREAMS, STREAMS)
    expanded = size * 9 // 4
    yield Case("hyper_expand", rows, lambda: ops.hyper_expand(y, pre, comb, streams), expanded)
    logits, bias = normal(rows, 384), normal(384)
    yield Case("route", rows, lambda: ops.route(logits, bias, EACH, 1.5), logits.nbytes)
    value, weight = normal(rows, HIDDEN), normal(STREAMS, HIDDEN)
    yield Case(
        "engram_gate",
        rows,
        lambda: ops.engram_gate(streams, streams, value, weight, 1e-20),
        3 * size + value.nbytes,
    )


def table_cases(rows: int) -> Iterator[Case]:
    """Rows of a table in pinned memory of the host."""
    entries = 1 << 20
    codes = torch.randint(0, 127, (entries, 256), dtype=torch.uint8).pin_memory()
    scales = torch.full((entries, 8), 127, dtype=torch.uint8).pin_memory()
    wanted = torch.randint(0, entries, (rows, 24), device=DEVICE)
    num_bytes = rows * 24 * 264
    yield Case("table_rows host", rows, lambda: ops.table_rows(codes, scales, wanted), num_bytes)


def linear_cases(rows: int) -> Iterator[Case]:
    fp8, wide = MatrixKind.FP8, MatrixKind.FLOAT32
    for name, kind, features, inputs, groups in (
        ("wq_a_kv", fp8, Q_RANK + SIZE, HIDDEN, 1),
        ("wq_b", fp8, HEADS * SIZE, Q_RANK, 1),
        ("wo_a", fp8, 8192, 4096, 8),
        ("wo_b", fp8, HIDDEN, 8192, 1),
        ("shared w1 w3", fp8, 2 * INNER, HIDDEN, 1),
        ("shared w2", fp8, HIDDEN, INNER, 1),
        ("gate", wide, 384, HIDDEN, 1),
        ("head", wide, 129280, HIDDEN, 1),
    ):
        if name == "head" and rows > 64:
            continue
        w, x = matrix(kind, features, inputs), normal(rows, groups * inputs)
        yield Case(
            f"linear_packed {name}",
            rows,
            _linear(x, w, is_rounding=kind is fp8 and name != "wo_a", groups=groups),
            held(w) + x.nbytes + rows * features * 4,
            2 * rows * features * inputs,
        )


def _linear(x: Tensor, w: PackedMatrix, *, is_rounding: bool, groups: int) -> Callable[[], object]:
    return lambda: ops.linear_packed(x, w, is_rounding=is_rounding, groups=groups)


def expert_cases(rows: int) -> Iterator[Case]:
    gate_up = matrix(MatrixKind.FP4, EXPERTS * 2 * INNER, HIDDEN)
    down = matrix(MatrixKind.FP4, EXPERTS * HIDDEN, INNER)
    experts = Experts(0, gate_up, down, 10.0, is_rounding=True)
    chosen, weights = ops.route(normal(rows, EXPERTS), normal(EXPERTS), EACH, 1.5)
    x = normal(rows, HIDDEN)
    touched = len(set(chosen.flatten().tolist()))
    yield Case(
        f"moe_experts ({touched} of {EXPERTS})",
        rows,
        lambda: ops.moe_experts(x, chosen, weights, experts),
        (held(gate_up) + held(down)) * touched // EXPERTS + 2 * x.nbytes,
        2 * rows * EACH * 3 * INNER * HIDDEN,
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """`rows` rows in the end of requests of `CONTEXT` tokens: one row each, or all of one."""

    rows: int
    is_decode: bool

    @property
    def runs(self) -> tuple[Tensor, Tensor]:
        """Paged and window runs."""
        if not self.is_decode:
            start = CONTEXT - self.rows
            paged = [[0, 0, self.rows, start]]
            window = [[0, 0, self.rows, 0, self.rows, start, 0]]
        else:
            end = CONTEXT - 1
            paged = [[n, n, 1, end] for n in range(self.rows)]
            window = [[n, n, 1, n, 1, end, 0] for n in range(self.rows)]
        return torch.tensor(paged, device=DEVICE), torch.tensor(window, device=DEVICE)

    def pages(self, kind: RowKind, size: int) -> Pages:
        slots = self.rows if self.is_decode else 1
        each = CONTEXT // RATIO // PER_PAGE
        values = ops.encode_rows(normal(each * PER_PAGE, size), kind)
        rows = values.view(each, PER_PAGE, -1).repeat(min(slots, 8), 1, 1)
        table = torch.arange(len(rows), dtype=torch.int32, device=DEVICE).view(-1, each)
        table = table.repeat(-(-slots // len(table)), 1)[:slots].contiguous()
        return Pages(rows, kind, size, RATIO, table, self.runs[0], CONTEXT // RATIO)

    def rings(self) -> Rings:
        slots, capacity = (self.rows if self.is_decode else 1), 160
        rows = ops.encode_rows(normal(slots * capacity, SIZE), RowKind.FP8)
        window = self.runs[1]
        first = int(window[0, 5])
        held_at = torch.arange(first - capacity, first, device=DEVICE)
        tags = torch.empty(capacity, dtype=torch.int64, device=DEVICE)
        tags[held_at % capacity] = held_at
        packed = rows.view(slots, capacity, -1)
        return Rings(packed, tags.repeat(slots, 1), RowKind.FP8, SIZE, window, WINDOW)


def page_cases(rows: int) -> Iterator[Case]:
    for is_decode in (True, False):
        if is_decode == (rows > 64):
            continue
        requests = Requests(rows, is_decode)
        word = "decode" if is_decode else "prefill"
        keys = requests.pages(RowKind.MXFP4, INDEX_SIZE)
        q, weight = ops.mxfp4_round(normal(rows, INDEX_HEADS, INDEX_SIZE)), normal(rows, 32)
        read = CONTEXT // RATIO * RowKind.MXFP4.row_bytes(INDEX_SIZE) * (rows if is_decode else 1)
        scored = 2 * rows * (CONTEXT // RATIO) * INDEX_HEADS * INDEX_SIZE
        yield Case(
            f"choose_entries {word}", rows,
            _choose(q, weight, keys, Choice(CHOSEN, 0, 8)), read, scored,
        )  # fmt: skip
        yield Case(
            f"choose_entries {word} cut", rows,
            _choose(q, weight, keys, Choice(CHOSEN, 2048, 8)), read, scored,
        )  # fmt: skip
        entries, rings = requests.pages(RowKind.NVFP4, SIZE), requests.rings()
        new = ops.encode_rows(normal(rows, SIZE), RowKind.FP8)
        chosen = torch.randint(0, CONTEXT // RATIO - 2048, (rows, CHOSEN), device=DEVICE)
        q, sink = normal(rows, HEADS, SIZE), normal(HEADS)
        each = WINDOW * RowKind.FP8.row_bytes(SIZE) + CHOSEN * RowKind.NVFP4.row_bytes(SIZE)
        yield Case(
            f"attend_pages {word}", rows,
            _attend(q, new, rings, entries, chosen.sort(1).values, sink),
            rows * each + 2 * q.nbytes, 4 * rows * HEADS * (WINDOW + CHOSEN) * SIZE,
        )  # fmt: skip


def _choose(q: Tensor, weight: Tensor, keys: Pages, choice: Choice) -> Callable[[], object]:
    return lambda: ops.choose_entries(q, weight, keys, choice, None)


def _attend(  # noqa: PLR0913 - as the operator
    q: Tensor, new: Tensor, rings: Rings, entries: Pages, chosen: Tensor, sink: Tensor
) -> Callable[[], object]:
    return lambda: ops.attend_pages(q, new, rings, entries, chosen, sink)


def measured(case: Case, ceilings: Ceilings) -> dict[str, object]:
    try:
        time_s = seconds(case.run)
    except RuntimeError as error:  # a kernel that does not fit: the others are still measured
        return {"name": case.name, "rows": case.rows, "error": str(error)[:200]}
    moved, done = case.num_bytes / time_s, case.num_flops / time_s
    of_bytes, of_flops = moved / ceilings.bytes_per_s, done / ceilings.flops_per_s
    print(
        f"{case.name:28} {case.rows:5} {time_s * 1e6:10.1f} us {moved / 1e9:8.1f} GB/s"
        f" {of_bytes:6.1%} {done / 1e12:7.1f} TFLOP/s {of_flops:6.1%}",
        flush=True,
    )
    return {
        "name": case.name,
        "rows": case.rows,
        "us": time_s * 1e6,
        "gb_per_s": moved / 1e9,
        "of_copy": of_bytes,
        "tflop_per_s": done / 1e12,
        "of_matrix": of_flops,
    }


def measure() -> dict[str, object]:
    """Ceilings and all cases. Prints a line for each."""
    ceilings = Ceilings.measure()
    print(f"copy {ceilings.bytes_per_s / 1e12:.2f} TB/s, bf16 {ceilings.flops_per_s / 1e12:.0f} T")
    makers = (small_cases, table_cases, linear_cases, expert_cases, page_cases)
    found = [measured(case, ceilings) for make in makers for rows in ROWS for case in make(rows)]
    return {"ceilings": dataclasses.asdict(ceilings), "cases": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    environment = dataclasses.asdict(Environment.read(["torch", "triton"]))
    device = torch.cuda.get_device_name()
    result = {"environment": environment, "device": device, **measure()}
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
