"""The cost of a step, and its fit to measured rates."""

from __future__ import annotations

import pytest
from benchmark.fleet.costs import Costs, fitted


def line(section: str, step: str, metric: str, value: float) -> dict[str, object]:
    servers = {"treadle": {"median": value}, "other": {"median": 1.0}}
    return {"section": section, "step": step, "metric": metric, "servers": servers}


def test_a_step_costs_its_rows_and_its_decoding_requests():
    costs = Costs(0.010, 0.001, 0.002)
    assert costs.step_s(100, 5) == pytest.approx(0.120)
    assert costs.times(2.0).step_s(100, 5) == pytest.approx(0.240)


def test_a_fit_gives_the_measured_rates_again():
    summary = [
        line("prefill", "512 tokens", "prompt_tps", 1000.0),
        line("decode", "batch 1", "decode_tps", 50.0),
        line("parallel", "8 requests", "decode_tps", 200.0),
    ]
    costs = fitted(summary)
    assert costs.row_s == pytest.approx(0.001)
    assert 1 / costs.step_s(0, 1) == pytest.approx(50.0)
    assert 8 / costs.step_s(0, 8) == pytest.approx(200.0)
    with pytest.raises(KeyError, match="batch 1"):
        fitted(summary[:1])
