"""One page that loads nothing."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

from test.treadle.bench import results
from treadle.bench.report_page import html_table, page


def test_every_result_is_there_with_its_tables_and_plots(tmp_path: Path):
    results.write(tmp_path)
    text = page(tmp_path)
    assert re.findall(r'<h2 id="([^"]*)">', text) == ["sessions", "turns"]
    assert text.count("<table>") == 2 and "<td>prompt_tps</td>" in text
    plots = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]*)", text)]
    assert plots == [b"<svg/>", b"PNG of more"]  # of two forms of one plot the drawing
    assert text.index("base64") < text.index('id="turns"')


def test_nothing_is_loaded_and_nothing_is_markup_by_accident(tmp_path: Path):
    results.write(tmp_path)
    text = page(tmp_path)
    assert "python -m x &lt;y&gt;" in text and "a &lt; b" in text
    sources: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "link", "iframe")
            sources.extend(v or "" for k, v in attrs if k in ("src", "href"))

    Reader().feed(text)
    assert sources and all(source.startswith(("#", "data:")) for source in sources)


def test_a_table_of_pipes_is_a_table():
    assert html_table("| a | b |\n| --- | --- |\n| 1 | <2> |\n") == (
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;2&gt;</td></tr></table>"
    )
