"""Tables between markers: of the results, of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.treadle.bench import results
from treadle.bench.report_tables import END, Unrenderable, rendered

SERVERS = f"before\n<!-- report: servers turns -->\nold\n{END}\nafter\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results.write(tmp_path)
    return tmp_path


def test_a_part_is_replaced_and_the_rest_is_as_it_was(folder: Path):
    new = rendered(SERVERS, folder)
    assert new.startswith("before\n<!-- report: servers turns -->\n| | treadle | llama.cpp |")
    assert new.endswith(f"|\n{END}\nafter\n") and "old" not in new
    assert rendered(new, folder) == new


def test_rows_have_ours_the_peer_and_the_ratio_with_its_spread(folder: Path):
    lines = rendered(SERVERS, folder).splitlines()
    assert "| prefill, 512 tokens | 4,000 tok/s | 12,000 tok/s | 0.333 (0.25 - 0.5) |" in lines
    turn = next(line for line in lines if "turn 4" in line)
    assert turn.endswith("| 4,000 s, 1 row | 12,000 s, 1,395 rows | 0.333 (0.25 - 0.5) |")


def test_agents_have_their_scales_and_their_picture(folder: Path):
    new = rendered(f"<!-- report: agents sessions -->\n{END}", folder)
    assert "| 2 | a | 1 / 1 |" in new
    assert "1 sessions, 1 turns; recorded lengths x 0.0625, recorded think times x 0.5;" in new
    assert "commit abc, `benchmark/results/sessions.json`" in new
    assert "(benchmark/results/sessions.svg)" in new


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"<!-- report: servers none -->\n{END}", "none.json: no such result"),
        (f"<!-- report: sails turns -->\n{END}", "servers or agents"),
        (f"<!-- report: servers -->\n{END}", "and results"),
        ("<!-- report: servers turns -->\n", "a marker without"),
        (f"<!-- report: agents turns -->\n{END}", "no result of bench agent"),
        (f"<!-- report: servers sessions -->\n{END}", "sessions: no prefill"),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, text: str, said: str):
    with pytest.raises(Unrenderable, match=said):
        rendered(text, folder)
