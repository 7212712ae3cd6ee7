"""Results -> the Markdown that stands between markers of a README.

A part of it begins with `<!-- report: KIND RESULT... -->` and ends with `<!-- report ends -->`;
`KINDS` are the kinds, and a RESULT is the name of a file without `.json`. All numbers of a part
are of those files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from .agent_table import table as agent_table
from .asks import Json
from .malformed import told
from .ratios import Line, read_line
from .spread import Spread, three_digits

END = "<!-- report ends -->"
PART = re.compile(r"<!-- report: ([^>]*?) -->\n(.*?)" + re.escape(END), re.S)
OURS = "treadle"


class Unrenderable(ValueError):
    """A marker or a result that does not fit; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a summary, by the names that it has there."""

    label: str
    section: str
    step: str
    metric: str


ROWS = (
    Row("prefill, 512 tokens", "prefill", "512 tokens", "prompt_tps"),
    Row("decode, one request", "decode", "batch 1", "decode_tps"),
    Row("8 requests at once, all tokens", "parallel", "8 requests", "total_tps"),
    Row("TTFT: a next turn (turn 4)", "turns", "turn 4", "ttft_s"),
    Row("TTFT: first branch again after a fork", "turns", "back to first branch", "ttft_s"),
    Row("TTFT: two sessions in turns, A4", "turns", "A4", "ttft_s"),
    Row("TTFT: two sessions in turns, A5", "turns", "A5", "ttft_s"),
    Row("TTFT: two sessions in turns, A6", "turns", "A6", "ttft_s"),
    Row("TTFT: the same prompt again", "turns", "same prompt again", "ttft_s"),
    Row("TTFT: an edit 60 tokens before the end", "turns", "edit 60 before the end", "ttft_s"),
    Row("TTFT: first of two sessions on one prefix, A1", "turns", "A1", "ttft_s"),
    Row("TTFT: second of two sessions on one prefix, B1", "turns", "B1", "ttft_s"),
)


def rendered(text: str, results: Path) -> str:
    """`text` with all its parts new. Raises Unrenderable, ValueError for a damaged result."""

    def one(found: re.Match[str]) -> str:
        kind, *names = found[1].split()
        if kind not in KINDS or not names:
            raise Unrenderable(f"report: {found[1]}: expected {' or '.join(KINDS)}, and results")
        read = [_read(results, name) for name in names]
        try:
            with told(" and ".join(names)):
                body = KINDS[kind](read, names)
        except ValueError as error:
            raise Unrenderable(str(error)) from None
        return f"<!-- report: {found[1]} -->\n{body}{END}"

    if text.count("<!-- report: ") != len(PART.findall(text)):
        raise Unrenderable(f"a marker without `{END}` after it")
    return PART.sub(one, text)


def servers(results: Sequence[Json], names: Sequence[str]) -> str:
    """Of `agent_turns`: ours beside the better of its peers, row by row."""
    lines = [read_line(line) for result in results for line in result["summary"]]
    found = {(line.section, line.step, line.metric): line for line in lines}
    out = ["| | treadle | llama.cpp | ratio |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        line = found.get((row.section, row.step, row.metric))
        if line is None or line.ratio is None:
            raise Unrenderable(f"no {row.section}, {row.step}, {row.metric}")
        is_time = row.metric == "ttft_s"
        counts = found.get((row.section, row.step, "rows")) if is_time else None
        unit = "s" if is_time else "tok/s"
        cells = [_cell(line, counts, name, unit) for name in (OURS, line.best_peer)]
        out.append(f"| {row.label} | {' | '.join(cells)} | {_ratio(line.ratio)} |")
    return "\n".join(out) + "\n"


def agents(results: Sequence[Json], names: Sequence[str]) -> str:
    """Of `bench agent`: its table, what was run, and its picture."""
    out = []
    for result, name in zip(results, names, strict=True):
        if result.get("kind") != "agent":
            raise Unrenderable(f"{name} is no result of bench agent")
        scales, first = result["scales"], result["points"][0]
        is_idle = scales["think"] != "none"
        think = f"recorded think times x {scales['time']:g}" if is_idle else "no think time"
        out.append(
            f"{agent_table(result['points'])}\n"
            f"Each point: {first['sessions']} sessions, {first['turns']} turns; recorded lengths x "
            f"{scales['length']:g}, {think}; commit {result['environment']['commit']}, "
            f"`benchmark/results/{name}.json`.\n\n"
            f"![throughput against interactivity and TTFT](benchmark/results/{name}.svg)\n"
        )
    return "\n".join(out)


KINDS: dict[str, Callable[[Sequence[Json], Sequence[str]], str]] = {
    "servers": servers,
    "agents": agents,
}


def _read(results: Path, name: str) -> Json:
    path = results / f"{name}.json"
    if not path.exists():
        raise Unrenderable(f"{path}: no such result")
    with told(path.name):
        found: Json = orjson.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("no object")
    return found


def _cell(line: Line, rows: Line | None, server: str, unit: str) -> str:
    text = f"{three_digits(line.servers[server].median)} {unit}"
    if rows is None:
        return text
    count = rows.servers[server].median
    return f"{text}, {count:,.0f} {'row' if count == 1 else 'rows'}"


def _ratio(ratio: Spread) -> str:
    text = f"{ratio.median:.3g}"
    return text if ratio.low == ratio.high else f"{text} ({ratio.low:.3g} - {ratio.high:.3g})"
