"""Command line, environment and YAML file -> ServerConfig with the notices to print.

Owns the reading of the flag tables; knows no flag by name except `--config` and the model argument
of `treadle serve`. Of several spellings of one field the last one wins; the command line comes
after the file, the file after the environment. Every error names the flag and the value.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import orjson
import yaml

from .flags.foreign import FOREIGN
from .flags.row import Flag, Kind, Status
from .flags.table import SECTIONS
from .srt.config import ServerConfig
from .srt.errors import ConfigError
from .srt.net.typed import WireError, load_json

Value = bool | int | float | str

ENVIRONMENT = (  # other servers' variables, the later one wins
    ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive"),
    ("SGLANG_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive"),
)
_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)([kmgKMG]?)(?:i?B)?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`notices` are lines for the user about flags that do nothing here."""

    config: ServerConfig
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Use:
    """One occurrence of a flag: the row, the spelling used, its text (None for a switch)."""

    flag: Flag
    spelling: str
    text: str | None


def parse_command_line(
    argv: Sequence[str], environ: Mapping[str, str], *, program: str, positional_model: bool = False
) -> CommandLine:
    """Raises ConfigError; `--help` raises SystemExit. With `positional_model` the model may be
    given as an argument without a flag.
    """
    parser = build_parser(program, positional_model=positional_model)
    own = parser.parse_args(argv)
    uses = [*_from_environment(parser, environ)]
    if own.config:
        uses += parser.parse_args(_file_arguments(Path(own.config))).uses or []
    if positional_model and own.model_argument:
        uses.append(_Use(SECTIONS[0][1][0], "MODEL", own.model_argument))
    uses += own.uses or []
    return CommandLine(_config_of(uses), _notices(uses))


def build_parser(program: str, *, positional_model: bool) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program,
        usage=f"{program} {'MODEL' if positional_model else '--model-path MODEL'} [flags]",
        description="Serve a model over HTTP. Sizes may be spelled 8k (8000), 8K (8192), 1M, 2G.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(uses=None)
    parser.add_argument("--config", metavar="FILE", help="YAML file of flags; this line wins")
    if positional_model:
        parser.add_argument("model_argument", nargs="?", metavar="MODEL", help="as --model-path")
    for title, flags in SECTIONS:
        _add_flags(parser.add_argument_group(title), flags)
    for status in (Status.ACCEPTED, Status.REFUSED):
        rows = tuple(f for f in FOREIGN if f.status is status)
        _add_flags(parser.add_argument_group(f"flags of other servers: {status}"), rows)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Note(argparse.Action):
    """Appends a `_Use`, so that order and spelling survive."""

    def __init__(self, option_strings: Sequence[str], dest: str, flag: Flag, help: str) -> None:
        switch = flag.kind is Kind.SWITCH
        super().__init__(
            option_strings,
            "uses",
            nargs=0 if switch else None,
            metavar=None if switch else "|".join(flag.choices) or flag.kind.upper(),
            help=help.replace("%", "%%"),
            default=argparse.SUPPRESS,
        )
        self.flag = flag

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        text = values if isinstance(values, str) else None
        use = _Use(self.flag, option_string or "", text)
        namespace.uses = [*(namespace.uses or []), use]


def _add_flags(group: argparse._ArgumentGroup, flags: tuple[Flag, ...]) -> None:
    for flag in flags:
        text = flag.help + _default(flag)
        group.add_argument(*flag.spellings, action=_Note, flag=flag, help=text)
        if flag.negation:
            text = f"the opposite of {flag.spelling}"
            group.add_argument(flag.negation, action=_Note, flag=flag, help=text)


def _default(flag: Flag) -> str:
    """For the help: what holds without the flag, where that is a plain value."""
    if not flag.field or flag.kind is Kind.SWITCH or "default" in flag.help:
        return ""
    section, name = flag.field.split(".")
    value = getattr(getattr(ServerConfig(), section), name)
    if value in ("", "{}", -1):  # by model or machine: settled at the launch, and logged then
        return ""
    return f"; default: {value:g}" if isinstance(value, float) else f"; default: {value}"


def _from_environment(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> list[_Use]:
    argv = [f"{flag}={environ[name]}" for name, flag in ENVIRONMENT if environ.get(name)]
    return parser.parse_args(argv).uses or []


def _file_arguments(path: Path) -> list[str]:
    """`page-size: 16` becomes `--page-size=16`, `x: true` becomes `--x`, `x: false` nothing or
    `--no-x`. Raises ConfigError.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise ConfigError(f"--config {path}: {' '.join(str(e).split())}") from None
    if content is None:
        return []
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path}: expected a mapping of flags to values")
    arguments = []
    for key, value in content.items():
        name = str(key).lstrip("-").replace("_", "-")
        arguments += _file_argument(path, name, value)
    return arguments


def _file_argument(path: Path, name: str, value: object) -> list[str]:
    if name == "config":
        raise ConfigError(f"--config {path}: a file cannot name another file")
    if isinstance(value, bool):
        return [f"--{name}"] if value else _switched_off(path, name)
    if isinstance(value, (str, int, float)):
        return [f"--{name}={value}"]
    raise ConfigError(f"--config {path}: {name}: expected one value, found {value!r}")


def _switched_off(path: Path, name: str) -> list[str]:
    for flag in (*(f for _, flags in SECTIONS for f in flags), *FOREIGN):
        if f"--{name}" in flag.spellings and flag.kind is Kind.SWITCH:
            return [flag.negation] if flag.negation else []
    raise ConfigError(f"--config {path}: {name}: false, but there is no such switch")


def _config_of(uses: Sequence[_Use]) -> ServerConfig:
    sections: dict[str, dict[str, Value]] = dataclasses.asdict(ServerConfig())
    for use in uses:
        value = _value(use)
        if use.flag.field:
            section, name = use.flag.field.split(".")
            sections[section][name] = value
    try:
        return load_json(ServerConfig, orjson.dumps(sections))
    except (WireError, orjson.JSONEncodeError) as e:
        raise ConfigError(f"command line: {e}") from None


def _value(use: _Use) -> Value:
    """Raises ConfigError for a refused flag and for text that is no value of its kind."""
    flag, text = use.flag, use.text
    if flag.status is Status.REFUSED and text not in flag.harmless:
        raise ConfigError(f"{use.spelling}{'' if text is None else ' ' + text}: {flag.why}")
    if text is None:
        return flag.negative if use.spelling == flag.negation else flag.const
    if flag.choices:
        word = dict(flag.synonyms).get(text, text)
        if word not in flag.choices:
            raise ConfigError(f"{use.spelling} {text}: must be one of {', '.join(flag.choices)}")
        return word
    return _convert(use, text)


def _convert(use: _Use, text: str) -> Value:
    if use.flag.kind is Kind.TEXT:
        return text
    try:
        if use.flag.kind is Kind.INT:
            return int(text)
        if use.flag.kind is Kind.FLOAT:
            return float(text)
    except ValueError:
        raise ConfigError(f"{use.spelling} {text}: expected a number") from None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{use.spelling} {text}: expected a number such as 8192, 8k, 8K or 1.5G")
    return int(float(found[1]) * _UNITS[found[2]])


def _notices(uses: Sequence[_Use]) -> tuple[str, ...]:
    lines = []
    for use in uses:
        if use.flag.status is Status.ACCEPTED:
            lines.append(f"{use.spelling} has no effect: {use.flag.why}")
        elif use.flag.why and use.text in dict(use.flag.synonyms):
            lines.append(f"{use.spelling} {use.text}: {use.flag.why}")
    return tuple(dict.fromkeys(lines))
