"""The server that a command measures: one that runs, or ours, started for the command alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .control import Unready
from .flag_values import not_negative
from .processes import OWN_COMMAND, ServerProcess, stop_servers_on_term, treadle_launch

EPILOG = "Other flags are those of the server that is started: see python -m treadle.launch_server."


def add_server(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("server").add_argument
    add("--base-url", help="of a server that runs")
    add("--model-path", "--model", help="start one of ours on this model, on a free port")
    add("--ready-check-timeout-sec", type=not_negative, default=60.0)


@contextmanager
def served(args: argparse.Namespace, server_flags: Sequence[str]) -> Iterator[str]:
    """Its URL. `server_flags`: what the command's parser did not know. Raises Unready, with the end
    of the log of a server that does not come up."""
    if args.base_url:
        if server_flags or args.model_path:
            unwanted = server_flags[0] if server_flags else "--model-path"
            raise Unready(f"{unwanted} is for a server that is started, not for --base-url")
        yield args.base_url.rstrip("/")
        return
    if not args.model_path:
        raise Unready("give --base-url, or --model-path to start a server")
    if taken := [flag for flag in server_flags if flag.split("=")[0] in ("--host", "--port")]:
        raise Unready(f"{taken[0]}: the server gets a free port of this host")
    stop_servers_on_term()
    with ServerProcess(treadle_launch(OWN_COMMAND, args.model_path, None, server_flags)) as process:
        process.wait_until_ready()
        yield process.url
