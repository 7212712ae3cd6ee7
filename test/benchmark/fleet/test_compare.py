"""What is simulated beside a real fleet: the same cache, by what its server says of itself."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from benchmark.fleet.compare import shape_of, simulated_cell
from benchmark.fleet.costs import Costs

from treadle.bench.spread import Spread
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import CacheSection

MODEL = Path(__file__).parents[2] / "checkpoints/v41-mini"


def test_the_simulated_cache_is_the_servers():
    cache = replace(
        CacheSection(),
        page_size=16,
        replay_mode="bounded",
        replay_slope=0,
        replay_depth=1,
        warm_windows=16,
        trim_rule="prompt",
        adopt_min_saving=16,
        canonical_grid=1024,
    )
    info = {**asdict(cache), "max_running": 8, "chunk_tokens": 512}
    info["scheduler_info"] = {"max_total_num_tokens": 4096}
    shape = shape_of(info, load_model_config(MODEL), Costs(0.0, 0.001, 0.0))
    assert shape.facts.num_pages == 1 + 256 and shape.facts.max_running == 8
    assert shape.facts.ring_rows == 128 + 32
    assert shape.rule.window == 128 and shape.rule.longest_run(shape.rule.default) == 128
    assert (shape.chunk, shape.per_token) == (512, 1.0)


def test_a_rate_of_many_seeds_has_a_range():
    assert simulated_cell(Spread.of([0.5, 0.5])) == "50.00"
    assert simulated_cell(Spread.of([0.2, 0.5, 0.3])) == "30.00 (20.00 - 50.00)"
