"""A fleet in simulated time: who is served, what is hit, who moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from benchmark.fleet.clients import Clients, Pace
from benchmark.fleet.rows import Row, table
from benchmark.fleet.setting import Setting
from benchmark.fleet.simulation import Plan, Simulation
from benchmark.fleet.tally import Figures

from test.benchmark.fleet.test_replica import shape_of
from treadle.bench.traces import Session, read_agents
from treadle.router.policies import PolicyRules

TURNS = 8


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[Session]:
    """Sessions that grow by 30 tokens a turn, 10 s apart."""
    path = tmp_path_factory.mktemp("trace") / "agents.jsonl"
    requests = [[10.0 * i, 64 + 32 * i, 8, i - 1, 2 + i - 1, "s", ""] for i in range(TURNS)]
    rows = [{"id": f"s{n}", "block_tokens": 32, "requests": requests} for n in range(7)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return read_agents(path, 1.0)


def run(sessions: list[Session], count: int, replicas: int, **fields) -> Figures:
    names = [f"http://r{number}:1" for number in range(replicas)]
    policy = PolicyRules(name=fields.pop("policy", "session"))
    shape = shape_of(num_pages=fields.pop("num_pages", 4000))
    costs = replace(shape.costs, base_s=0.01, row_s=0.0001, decode_s=0.0001)
    plan = Plan(names, replace(shape, costs=costs), policy, 1, **fields)
    return Simulation(Clients(sessions, count, Pace(1.0, 30.0, 1)), plan).run()


def test_every_turn_is_answered_and_hits_all_whole_pages(sessions: list[Session]):
    found = run(sessions, 20, 1)
    assert found.requests == 20 * TURNS
    lost = found.best_hit_rate - found.hit_rate
    assert 0 <= lost * found.prompt_tokens <= found.requests * 4  # a page of each at most
    assert found.imbalance_rows == 1.0 and not found.moved


def test_equal_seeds_give_equal_figures(sessions: list[Session]):
    assert run(sessions, 30, 4) == run(sessions, 30, 4)


def test_policies_differ_in_hits(sessions: list[Session]):
    rates = {name: run(sessions, 40, 8, policy=name).hit_rate for name in ("session", "random")}
    assert rates["session"] > run(sessions, 40, 1).hit_rate - 0.03
    assert rates["random"] < 0.6 * rates["session"]


def test_a_small_pool_costs_hits(sessions: list[Session]):
    assert run(sessions, 20, 1, num_pages=200).hit_rate < run(sessions, 20, 1).hit_rate - 0.2


def test_only_sessions_of_killed_replicas_move(sessions: list[Session]):
    found = run(sessions, 60, 10, kill_share=0.1, kill_at_s=45.0)
    assert found.moved["killed_moved"] > 0
    assert set(found.moved) == {"killed_moved", "alive_stayed"}
    assert found.decisions["failover"] == found.moved["killed_moved"]
    assert found.requests >= 60 * TURNS and not found.lost


def test_time_may_be_over_before_the_turns(sessions: list[Session]):
    found = run(sessions, 10, 2, until_s=50.0)
    assert 0 < found.requests < 10 * TURNS and found.seconds <= 50.0


def test_a_table_names_what_was_simulated(sessions: list[Session]):
    figures = run(sessions, 20, 10, kill_share=0.1, kill_at_s=45.0)
    text = table([Row(Setting(10, 20, "session", 16_000), figures, 1.0, 1.0)])
    head, rule, line = text.splitlines()
    assert head.count("|") == rule.count("|") == line.count("|")
    assert "`session`" in line and f"{100 * figures.hit_rate:.2f}" in line


def test_plots_are_drawn(sessions: list[Session], tmp_path: Path):
    pytest.importorskip("matplotlib")
    from benchmark.fleet.plots import draw

    rows = [Row(Setting(n, 20, "session", 16_000), run(sessions, 20, n), 1.0, 1.0) for n in (1, 2)]
    draw(rows, "replicas", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
