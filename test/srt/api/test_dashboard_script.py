"""What the script may not do; what it does a browser shows, in e2e/test_dashboard."""

from __future__ import annotations

import re

from treadle.srt.api.dashboard_page import BODY
from treadle.srt.api.dashboard_script import SCRIPT


def test_names_of_clients_never_become_markup():
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert word not in SCRIPT
    assert "</script" not in SCRIPT


def test_it_asks_this_server_only():
    assert re.findall(r"fetch\('([^']+)'", SCRIPT) == ["dashboard/data"]
    assert re.findall(r"https?://[^']+", SCRIPT) == ["http://www.w3.org/2000/svg"]


def test_what_it_looks_for_is_on_the_page():
    assert set(re.findall(r"\$\('(\w+)'\)", SCRIPT)) <= set(re.findall(r'id="(\w+)"', BODY)) | {
        *re.findall(r'id="(\w+)">', BODY)
    }
