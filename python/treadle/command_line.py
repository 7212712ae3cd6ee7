"""The command line of the server: `ServerConfig` from its flags, with the notices to print."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence

from .flag_parser import CommandLine, FlagTable, make_parser, parse_flags
from .flags.foreign import FOREIGN
from .flags.table import SECTIONS
from .srt.config import ServerConfig

ENVIRONMENT = (  # other servers' variables, the later one wins
    ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive"),
    ("SGLANG_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive"),
)
TABLE = FlagTable(
    ServerConfig,
    SECTIONS,
    FOREIGN,
    usage="--model-path MODEL",
    description="Serve a model over HTTP. Sizes may be spelled 8k (8000), 8K (8192), 1M, 2G.",
    environment=ENVIRONMENT,
)
WITH_ARGUMENT = dataclasses.replace(TABLE, usage="MODEL", positional=SECTIONS[0][1][0])


def parse_command_line(
    argv: Sequence[str], environ: Mapping[str, str], *, program: str, positional_model: bool = False
) -> CommandLine[ServerConfig]:
    """Raises ConfigError; `--help` raises SystemExit. With `positional_model` the model may be
    given as an argument without a flag.
    """
    return parse_flags(WITH_ARGUMENT if positional_model else TABLE, argv, environ, program)


def build_parser(program: str, *, positional_model: bool) -> argparse.ArgumentParser:
    return make_parser(WITH_ARGUMENT if positional_model else TABLE, program)
