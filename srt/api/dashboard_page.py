"""The dashboard as one HTML page that loads nothing: no script, style or font from outside.

It holds no data. `data-metric` names a number of `/dashboard/data`, which is called the same in
`/metrics`; `data-rate` one whose growth per second over the last polls is shown. What comes from
clients (names of sessions) is only ever set as text.
"""

from __future__ import annotations

from .dashboard_script import SCRIPT

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)
STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--exact:#2a9d8f;--output:#7cc4bc;
--a:#3b82c4;--b:#e0a030;--c:#c0504d;--d:#8c6bb1}
body{font:14px/1.45 system-ui,sans-serif;max-width:76rem;margin:1.2rem auto;padding:0 1rem}
header{display:flex;gap:1rem;align-items:baseline;flex-wrap:wrap}h1{font-size:1.3rem;margin:0}
h2{font-size:1rem;margin:1.4rem 0 .4rem}#state{opacity:.75}#state.bad{color:var(--c);opacity:1}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.5rem;
margin-top:.8rem}
.tiles>div{border:1px solid var(--line);border-radius:6px;padding:.4rem .6rem}
.tiles b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.tiles span,.key{opacity:.75;font-size:.85em}
.two{display:grid;grid-template-columns:1fr 1fr;gap:1.2rem}
@media(max-width:50rem){.two{grid-template-columns:1fr}}
.bar{display:flex;height:1.3rem;border-radius:4px;overflow:hidden;background:var(--soft)}
.key{display:flex;gap:.9rem;flex-wrap:wrap;margin-top:.3rem}
.key i{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.3em}
svg{width:100%;display:block;background:var(--soft);border-radius:4px}
#tree{height:22rem}.chart{height:6rem}svg text{font:11px system-ui,sans-serif;fill:#fff;
pointer-events:none}rect.pinned{stroke:CanvasText;stroke-width:1.5}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{border-top:1px solid var(--line);padding:.2rem .5rem;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left;max-width:18rem;overflow:hidden;
text-overflow:ellipsis}input,button{font:inherit}
"""
COLORS = {
    "free": "#8884",
    "evictable": "var(--exact)",
    "protected": "var(--a)",
    "private": "var(--b)",
    "taken": "var(--b)",
    "warm": "var(--exact)",
    "quarantine": "var(--c)",
}
PAGES = (
    ("free", "free"),
    ("evictable", "cached, unread"),
    ("protected", "cached, in use"),
    ("private", "of one request, in use"),
    ("quarantine", "waiting for a step"),
)
SLOTS = (
    ("free", "free"),
    ("warm", "kept windows"),
    ("taken", "in use"),
    ("quarantine", "waiting for a step"),
)


def _tile(label: str, attributes: str, title: str) -> str:
    return f'<div title="{title}"><b {attributes}>-</b><span>{label}</span></div>'


def _bar(name: str, metric: str, states: tuple[tuple[str, str], ...]) -> str:
    """A stacked bar, and what its parts are with their numbers."""
    parts = "".join(
        f'<div style="background:{COLORS[state]}" data-part="{metric}{{state={state}}}"></div>'
        for state, _ in states
    )
    keys = "".join(
        f'<span><i style="background:{COLORS[state]}"></i>{label} '
        f'<b data-metric="{metric}{{state={state}}}">-</b></span>'
        for state, label in states
    )
    return f'<div class="bar" id="{name}">{parts}</div><div class="key">{keys}</div>'


TILES = (
    ("running", 'data-metric="sglang:num_running_reqs"', "requests with pages and a slot"),
    ("waiting", 'data-metric="sglang:num_queue_reqs"', "requests without"),
    ("held", 'data-metric="sglang:num_grammar_queue_reqs"', "for a grammar"),
    ("generated tok/s", 'data-rate="treadle:generation_tokens_total"', "all requests"),
    ("prompt rows/s", 'data-rate="treadle:fresh_rows_total"', "computed for the first time"),
    ("from cache tok/s", 'data-rate="treadle:prefix_hit_tokens_total"', "adopted prefixes"),
    ("replayed rows/s", 'data-rate="treadle:replay_rows_total"', "run again for the windows"),
    ("replayed rows", 'data-metric="treadle:replay_rows_total"', "since start"),
    (
        "hit rate now",
        'data-share="treadle:prefix_hit_tokens_total" data-of="treadle:prefix_query_tokens_total"',
        "of the prompts of the last polls",
    ),
    ("hit rate", 'data-metric="sglang:cache_hit_rate" data-percent', "since start"),
    ("KV in use", 'data-metric="sglang:token_usage" data-percent', "of all pages"),
    (
        "approximate pages",
        'data-metric="treadle:tree_nonexact_ratio" data-percent',
        "of those in the tree: a bounded replay lies behind them",
    ),
)
BODY = f"""
<header><h1>treadle <span id="version"></span></h1><span id="model"></span>
<span id="state" role="status">waiting for data</span><button id="pause">pause</button>
<form id="key" hidden><input type="password" placeholder="API key" aria-label="API key">
<button>use</button></form></header>
<div class="tiles">{"".join(_tile(*tile) for tile in TILES)}</div>
<div class="two">
<section><h2>Tokens per second</h2><svg class="chart" id="rates" viewBox="0 0 600 100"
preserveAspectRatio="none"></svg><div class="key">
<span><i style="background:var(--a)"></i>generated</span>
<span><i style="background:var(--b)"></i>prompt rows</span>
<span><i style="background:var(--exact)"></i>from cache</span>
<span><i style="background:var(--c)"></i>replayed</span><span id="ratemax"></span></div></section>
<section><h2>Requests</h2><svg class="chart" id="counts" viewBox="0 0 600 100"
preserveAspectRatio="none"></svg><div class="key">
<span><i style="background:var(--a)"></i>running</span>
<span><i style="background:var(--b)"></i>waiting</span><span id="countmax"></span></div></section>
<section><h2>Pages of global KV</h2>{_bar("pages", "treadle:pages", PAGES)}</section>
<section><h2>Window slots</h2>{_bar("slots", "treadle:window_slots", SLOTS)}</section>
</div>
<h2>Prefix tree <span id="treesize" class="key" style="display:inline"></span></h2>
<svg id="tree" viewBox="0 0 1000 350" preserveAspectRatio="none" role="img"
aria-label="prefix tree"></svg>
<div class="key"><span>left to right: tokens from the start of a prompt; height: share of what is
cached below</span><span><i style="background:var(--exact)"></i>exact prompt</span>
<span><i style="background:var(--output)"></i>exact output</span>
<span><i style="background:hsl(42 80% 50%)"></i>one replay behind it</span>
<span><i style="background:hsl(2 80% 50%)"></i>ten or more</span>
<span><i style="background:#888"></i>many small ones</span><span>framed: in use</span></div>
<h2>Sessions</h2><div class="scroll"><table id="sessions"></table></div>
<h2>Requests</h2><div class="scroll"><table id="requests"></table></div>
"""
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>treadle</title>'
    f"<style>{STYLE}</style>{BODY}<script>{SCRIPT}</script></html>"
)
