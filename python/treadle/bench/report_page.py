"""All results as one HTML page that loads nothing: tables, plots, what each was measured on.

A result NAME.json has the plots NAME*.svg and NAME*.png beside it; where one is there in both
forms the first is shown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path

import orjson

from .agent_table import table as agent_table
from .asks import Json
from .malformed import told
from .ratios import read_line, whole_table

MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}
MAX_SHOWN = 40_000  # bytes of a result that are shown as they are
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: left }
img { max-width: 100% } pre { overflow: auto; font-size: 12px } nav a { margin-right: 1em }
"""


def page(results: Path) -> str:
    """Raises OSError, ValueError."""
    paths = sorted(results.glob("*.json"))
    links = "".join(f'<a href="#{escape(p.stem)}">{escape(p.stem)}</a>' for p in paths)
    body = "".join(_told(path, paths) for path in paths)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>treadle: results</title>"
        f"<style>{STYLE}</style><h1>treadle: results</h1><nav>{links}</nav>{body}</html>\n"
    )


def _told(path: Path, paths: list[Path]) -> str:
    """Raises ValueError, which names the result, and OSError."""
    with told(path.name):
        return "".join(_result(path, paths))


def _result(path: Path, paths: list[Path]) -> Iterator[str]:
    found: Json = orjson.loads(path.read_bytes())
    yield f'<h2 id="{escape(path.stem)}">{escape(path.stem)}</h2>'
    environment = found.get("environment", {})
    texts = {name: environment.get(name) for name in ("date", "commit", "cpu", "num_cpus", "load")}
    facts = ", ".join(f"{name} {value}" for name, value in texts.items() if value is not None)
    yield f"<p><code>{escape(str(environment.get('command', '')))}</code><br>{escape(facts)}</p>"
    for note in found.get("notes", []):
        yield f"<p>{escape(str(note))}</p>"
    if found.get("kind") == "agent":
        yield html_table(agent_table(found["points"]))
    if lines := found.get("summary"):
        yield from _summary(lines)
    for plot in _plots(path, paths):
        data = base64.b64encode(plot.read_bytes()).decode()
        yield f'<img alt="{escape(plot.stem)}" src="data:{MEDIA[plot.suffix]};base64,{data}">'
    if path.stat().st_size <= MAX_SHOWN:
        text = orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
        yield f"<details><summary>{escape(path.name)}</summary><pre>{escape(text)}</pre></details>"


def _summary(lines: object) -> Iterator[str]:
    """Of a comparison of servers; other summaries are in the result as it is."""
    if isinstance(lines, list) and all("best_peer" in line for line in lines):
        yield html_table(whole_table([read_line(line) for line in lines]))


def _plots(path: Path, paths: list[Path]) -> list[Path]:
    """Those whose longest result is this one: NAME-part.png is not of NA.json."""
    stems = sorted((other.stem for other in paths), key=len, reverse=True)
    found: dict[str, Path] = {}
    for suffix in reversed(MEDIA):
        for plot in path.parent.glob(f"*{suffix}"):
            if next((stem for stem in stems if plot.stem.startswith(stem)), "") == path.stem:
                found[plot.stem] = plot
    return [found[stem] for stem in sorted(found)]


def html_table(markdown: str) -> str:
    """Of a table of pipes, whose second line is its rule."""
    rows = [line.strip().strip("|").split("|") for line in markdown.strip().splitlines()]
    head, _, *body = rows
    cells = ["".join(f"<th>{escape(cell.strip())}</th>" for cell in head)]
    cells += ["".join(f"<td>{escape(cell.strip())}</td>" for cell in row) for row in body]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
