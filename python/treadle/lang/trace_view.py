"""A trace drawn as one HTML page that needs nothing else: a timeline with a lane per branch, and
the entries as a table that unfolds.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from .entry_json import asked_json, told_json
from .recorder import Entry
from .trace import BranchSpan, Trace, entry_meta

WIDTH, LANE, BAR, LEFT = 1100.0, 26.0, 18.0, 150.0  # pixels
COLORS = {"generate": "#3b7dd8", "select": "#8e5bd0", "commit": "#9aa5b1", "tool": "#e08e2b"}
FAILED = "#cc3d3d"
MAX_CHARS = 20_000  # of one entry's text in the page
STYLE = """body{font:14px system-ui,sans-serif;margin:2em;color:#222}svg text{font:12px monospace}
table{border-collapse:collapse}td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #ddd}
td.l,th.l{text-align:left}pre{white-space:pre-wrap;max-width:900px;text-align:left}
.k{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px}"""


def page(trace: Trace) -> str:
    """The whole document."""
    title = html.escape(f"{trace.program or 'run'} on {trace.backend}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"{_summary(trace)}{_legend()}{timeline(trace)}{_table(trace)}</body></html>"
    )


def _summary(trace: Trace) -> str:
    totals = trace.totals()
    share = totals.cached_tokens / totals.prompt_tokens if totals.prompt_tokens else 0.0
    lines = [
        f"{trace.seconds:.2f} s, {len(trace.branches)} branches, {totals.num_requests} requests, "
        f"{totals.num_tool_calls} tool calls",
        f"{totals.prompt_tokens} prompt tokens, {totals.cached_tokens} of them cached "
        f"({share:.0%}), {totals.replayed_tokens} replayed; {totals.completion_tokens} generated",
    ]
    if trace.error:
        lines.append(f"ended in {trace.error}")
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _legend() -> str:
    keys = [*COLORS.items(), ("failed", FAILED)]
    marks = (f'<span class="k" style="background:{color}"></span>{name}' for name, color in keys)
    return f"<p>{''.join(marks)}</p>"


def timeline(trace: Trace) -> str:
    """An SVG image. A child's lane is below its parent's, indented."""
    lanes = _lanes(trace.branches)
    last = max([entry.end_s or entry.start_s for entry in trace.entries], default=0.0)
    scale = (WIDTH - LEFT - 20) / max(trace.seconds, last, 1e-6)
    height = LANE * (len(lanes) + 1) + 20
    parts = [f'<svg width="{WIDTH:g}" height="{height:g}" role="img" aria-label="timeline">']
    for row, (span, depth) in enumerate(lanes):
        y = LANE * row + 20
        name = html.escape("  " * depth + span.id[:8])
        parts.append(f'<text x="4" y="{y + 13:g}" xml:space="preserve">{name}</text>')
        parts.append(
            f'<line x1="{LEFT:g}" x2="{WIDTH:g}" y1="{y + BAR:g}" y2="{y + BAR:g}" stroke="#eee"/>'
        )
    rows = {span.id: row for row, (span, _) in enumerate(lanes)}
    for entry in trace.entries:
        parts.append(_bar(entry, rows.get(entry.branch, len(lanes)), scale))
    parts += [_tick(i, last, scale, height) for i in range(5)]
    return "".join([*parts, "</svg>"])


def _lanes(branches: Sequence[BranchSpan]) -> list[tuple[BranchSpan, int]]:
    """With their depths, children after their parents."""
    known = {span.id for span in branches}
    children: dict[str | None, list[BranchSpan]] = {}
    for span in branches:
        children.setdefault(span.parent if span.parent in known else None, []).append(span)
    lanes: list[tuple[BranchSpan, int]] = []
    pending = [(span, 0) for span in reversed(children.get(None, []))]
    while pending:
        span, depth = pending.pop()
        lanes.append((span, depth))
        pending += [(child, depth + 1) for child in reversed(children.get(span.id, []))]
    return lanes


def _bar(entry: Entry, row: int, scale: float) -> str:
    end = entry.start_s if entry.end_s is None else entry.end_s
    x, width = LEFT + entry.start_s * scale, max(2.0, (end - entry.start_s) * scale)
    color = FAILED if entry.error else COLORS.get(entry.kind, "#777")
    tip = html.escape(f"{_label(entry)}: {end - entry.start_s:.3f} s {_tokens(entry)}")
    opacity = ' opacity="0.4"' if entry.is_recalled else ""
    return (
        f'<rect x="{x:.1f}" y="{LANE * row + 20:g}" width="{width:.1f}" height="{BAR:g}" rx="2" '
        f'fill="{color}"{opacity}><title>{tip}</title></rect>'
    )


def _tick(index: int, last: float, scale: float, height: float) -> str:
    seconds = last * index / 4
    x = LEFT + seconds * scale
    return f'<text x="{x:.1f}" y="{height - 4:g}" fill="#888">{seconds:.2f} s</text>'


def _label(entry: Entry) -> str:
    return f"{entry.kind} {entry.name or ''}".strip()


def _tokens(entry: Entry) -> str:
    meta = entry_meta(entry)
    if not meta:
        return ""
    return f"{meta.get('prompt_tokens')} tokens, {meta.get('cached_tokens')} cached"


def _table(trace: Trace) -> str:
    names = ("start", "s", "prompt", "cached", "replayed", "generated")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(map(_row, trace.entries))
    return f'<h2>Entries</h2><table><tr><th class="l">what</th>{head}</tr>{rows}</table>'


def _row(entry: Entry) -> str:
    meta = entry_meta(entry)
    keys = ("prompt_tokens", "cached_tokens", "replayed_tokens", "completion_tokens")
    counts = ["" if meta.get(key) is None else str(meta[key]) for key in keys]
    seconds = "" if entry.end_s is None else f"{entry.end_s - entry.start_s:.3f}"
    cells = "".join(f"<td>{cell}</td>" for cell in (f"{entry.start_s:.3f}", seconds, *counts))
    told = entry.error or (None if entry.told is None else told_json(entry.told))
    body = f"{_text(asked_json(entry.asked))}\n\n{_text(told)}"
    what = f"<details><summary>{html.escape(_label(entry))}</summary><pre>{body}</pre></details>"
    return f'<tr><td class="l">{what}</td>{cells}</tr>'


def _text(value: object) -> str:
    """JSON to be read, cut where it would swamp the page."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    cut = "" if len(text) <= MAX_CHARS else f"\n... {len(text) - MAX_CHARS} characters more"
    return html.escape(text[:MAX_CHARS] + cut)
