"""The first release's checklist: which tests stand for each of its lines.

Lines that no test here can stand for are left out: they need other programs or a later release.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLIENTS, ENGINE = "e2e/test_conformance.py", "e2e/test_conformance_engine.py"
CHECKLIST = {
    "C1 openai": (CLIENTS, "test_c1_openai_sdk_"),
    "C1 openai tools": ("e2e/test_tools.py", "test_forced_calls_hold_their_schema"),
    "C1 anthropic": ("e2e/test_anthropic_sdk.py", "test_sdk_works_unmodified"),
    "C1 anthropic errors": ("srt/api/test_anthropic_sdk.py", "test_sdk_raises_the_right_class"),
    "C2": (CLIENTS, "test_c2_"),
    "C3": (CLIENTS, "test_c3_"),
    "C5": (CLIENTS, "test_c5_"),
    "C6": ("e2e/test_loglikelihood.py", "test_loglikelihoods_equal_"),
    "C8 rows": ("e2e/test_bad_input.py", "test_bad_input_is_named_and_harms_nobody"),
    "C8 fields": ("srt/api/test_error_table.py", "test_bad_input_is_refused_with_words_"),
    "C8 fuzz": ("e2e/test_schemathesis.py", "test_no_500_no_hang_no_undocumented_status"),
    "C9": (ENGINE, "test_c9_"),
    "C9 step": ("srt/sched/test_abort.py", "test_"),
    "C10": (ENGINE, "test_c10_"),
    "C10 rows": ("test_surface.py", "test_metric_is_there_with_type_and_labels"),
    "C12": (ENGINE, "test_c12_"),
    "C13": ("test_surface.py", "test_flag_parses_and_its_default_is_the_documented_one"),
    "aborts": ("e2e/test_abort_storm.py", "test_storms_of_aborts_leak_nothing_"),
    "deaths": ("e2e/test_lost_process.py", "test_killed_process_ends_all_requests_"),
}


@pytest.mark.parametrize("line", CHECKLIST)
def test_line_has_tests(line: str):
    file, prefix = CHECKLIST[line]
    tree = ast.parse((TESTS / file).read_text())
    functions = [x for x in tree.body if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [function.name for function in functions if function.name.startswith(prefix)]
