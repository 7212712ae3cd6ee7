"""`treadle trace view FILE` and `treadle trace replay FILE --url URL`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..client.background import background
from ..client.errors import ClientError
from .remote import RuntimeEndpoint
from .trace import Totals, Trace
from .trace_replay import Comparison, compare, replay
from .trace_view import page


def main(argv: Sequence[str]) -> int:
    """Exit status; 1 with one line on standard error for what the user can mend."""
    args = _parser().parse_args(argv)
    try:
        trace = Trace.load(args.file)
        if args.action == "view":
            return _view(trace, args.out or args.file.with_suffix(".html"))
        return _replay(trace, args)
    except (ClientError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="treadle trace", description="Look at a saved run.")
    actions = parser.add_subparsers(dest="action", required=True)
    view = actions.add_parser("view", help="draw it as an HTML page")
    view.add_argument("file", type=Path)
    view.add_argument("--out", type=Path, help="default: the file with .html")
    again = actions.add_parser("replay", help="ask it again of another server")
    again.add_argument("file", type=Path)
    again.add_argument("--url", required=True, help="of the server or router")
    again.add_argument("--api-key")
    again.add_argument("--pace", type=float, default=0.0, help="1 keeps the times between requests")
    again.add_argument("--out", type=Path, help="a file for the new trace")
    return parser


def _view(trace: Trace, out: Path) -> int:
    out.write_text(page(trace), encoding="utf-8")
    sys.stdout.write(f"{out}\n")
    return 0


def _replay(trace: Trace, args: argparse.Namespace) -> int:
    """1 also when a request failed."""
    endpoint = RuntimeEndpoint(args.url, api_key=args.api_key)
    try:
        again = background().wait(replay(trace, endpoint, pace=args.pace))
    finally:
        endpoint.close()
    if args.out:
        again.save(args.out)
    found = compare(trace, again)
    sys.stdout.write(report(found))
    return 1 if found.num_failed else 0


def report(found: Comparison) -> str:
    rows = [
        ("", "before", "now"),
        ("seconds", f"{found.seconds_before:.2f}", f"{found.seconds_after:.2f}"),
        *_rows(found.before, found.after),
    ]
    lines = [f"{name:18}{before:>12}{after:>12}\n" for name, before, after in rows]
    same = f"same outputs: {found.num_same} of {found.num_outputs}; failed: {found.num_failed}\n"
    return "".join([*lines, same])


def _rows(before: Totals, after: Totals) -> list[tuple[str, str, str]]:
    pairs = {
        "requests": (before.num_requests, after.num_requests),
        "prompt tokens": (before.prompt_tokens, after.prompt_tokens),
        "cached tokens": (before.cached_tokens, after.cached_tokens),
        "replayed tokens": (before.replayed_tokens, after.replayed_tokens),
        "generated tokens": (before.completion_tokens, after.completion_tokens),
    }
    return [(name, str(old), str(new)) for name, (old, new) in pairs.items()]
