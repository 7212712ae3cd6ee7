"""Has the server profile itself while a load runs: where its traces go is for it to say."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .asks import Json
from .control import Control
from .flag_values import positive

# What /start_profile calls what the flags say.
FIELDS = {
    "activities": "profile_activities",
    "num_steps": "profile_num_steps",
    "profile_by_stage": "profile_by_stage",
    "output_dir": "profile_output_dir",
    "profile_prefix": "profile_prefix",
}


def add_profile(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("profile of the server, by itself").add_argument
    add("--profile", action="store_true", help="/start_profile before the load, then /stop_profile")
    add("--profile-activities", nargs="+", choices=["CPU", "GPU"])
    add("--profile-num-steps", type=positive, help="the server stops after so many by itself")
    add("--profile-by-stage", action="store_true", help="prefill and decode in a trace each")
    add("--profile-output-dir", help="a folder of the server's machine")
    add("--profile-prefix", help="of the traces' names")


def profile_wish(args: argparse.Namespace) -> Json | None:
    """The body of /start_profile; None: no profile. Raises ValueError for flags without one."""
    given = vars(args)
    wish = {field: given[flag] for field, flag in FIELDS.items() if given[flag]}
    if args.profile:
        return wish
    if wish:
        flag = FIELDS[next(iter(wish))].replace("_", "-")
        raise ValueError(f"--{flag} needs --profile")
    return None


@asynccontextmanager
async def profiled(control: Control, wish: Json | None) -> AsyncIterator[None]:
    """Raises Unready with what the server says."""
    if wish is None:
        yield
        return
    await control.command("/start_profile", wish)
    try:
        yield
    finally:
        if "num_steps" not in wish:
            await control.command("/stop_profile")
