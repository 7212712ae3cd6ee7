"""What a step of a replica's device costs: the one thing that the simulator models.

    step = base + rows * row + decoding requests * decode        seconds

`fitted` takes the three from rates that `benchmark.serving.agent_turns` has measured: of a long
prompt, and of one and of several requests that decode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PREFILL = ("prefill", "512 tokens", "prompt_tps")
ALONE = ("decode", "batch 1", "decode_tps")
TOGETHER = ("parallel", "8 requests", "decode_tps")
NUM_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds."""

    base_s: float
    row_s: float
    decode_s: float

    def times(self, factor: float) -> Costs:
        return Costs(factor * self.base_s, factor * self.row_s, factor * self.decode_s)

    def step_s(self, rows: float, decoding: int) -> float:
        return self.base_s + rows * self.row_s + decoding * self.decode_s


def fitted(summary: Sequence[Mapping[str, object]], server: str = "treadle") -> Costs:
    """From the `summary` of a result. Raises KeyError for a rate that is not in it."""
    prefill, alone, together = (_rate(summary, key, server) for key in (PREFILL, ALONE, TOGETHER))
    one_s, many_s = 1.0 / alone, NUM_TOGETHER / together
    decode_s = max(0.0, (many_s - one_s) / (NUM_TOGETHER - 1))
    return Costs(max(0.0, one_s - decode_s), 1.0 / prefill, decode_s)


def _rate(summary: Sequence[Mapping[str, object]], key: tuple[str, str, str], server: str) -> float:
    for line in summary:
        if (line["section"], line["step"], line["metric"]) == key:
            servers = line["servers"]
            assert isinstance(servers, dict)
            return float(servers[server]["median"])
    raise KeyError(" ".join(key))
