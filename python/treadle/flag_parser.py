"""Command line, environment and YAML file -> a configuration with the notices to print.

Owns the reading of flag tables; knows no flag by name except `--config`. Of several spellings of
one field the last one wins; the command line comes after the file, the file after the environment.
Every error names the flag and the value.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import orjson
import yaml

from .flags.row import Flag, Kind, Status
from .srt.errors import ConfigError
from .srt.net.typed import WireError, load_json

Value = bool | int | float | str

_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)([kmgKMG]?)(?:i?B)?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class FlagTable(Generic[C]):
    """All flags of a command. `config` makes the value that they change, of nested sections.
    `environment`: variables and the flags they stand for, the later one wins. `positional`: whose
    value may be given as an argument without a flag.
    """

    config: type[C]
    sections: tuple[tuple[str, tuple[Flag, ...]], ...]
    foreign: tuple[Flag, ...]
    usage: str
    description: str
    environment: tuple[tuple[str, str], ...] = ()
    positional: Flag | None = None

    @property
    def flags(self) -> tuple[Flag, ...]:
        return (*(flag for _, flags in self.sections for flag in flags), *self.foreign)


@dataclass(frozen=True, slots=True)
class CommandLine(Generic[C]):
    """`notices` are lines for the user about flags that do nothing here."""

    config: C
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Use:
    """One occurrence of a flag: the row, the spelling used, its text (None for a switch)."""

    flag: Flag
    spelling: str
    text: str | None


def parse_flags(
    table: FlagTable[C], argv: Sequence[str], environ: Mapping[str, str], program: str
) -> CommandLine[C]:
    """Raises ConfigError; `--help` raises SystemExit."""
    parser = make_parser(table, program)
    own = parser.parse_args(argv)
    uses = [*_from_environment(table, parser, environ)]
    if own.config:
        uses += parser.parse_args(_file_arguments(table, Path(own.config))).uses or []
    if table.positional is not None and own.argument:
        uses.append(_Use(table.positional, "MODEL", own.argument))
    uses += own.uses or []
    return CommandLine(_config_of(table, uses), _notices(uses))


def make_parser(table: FlagTable[C], program: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program,
        usage=f"{program} {table.usage} [flags]",
        description=table.description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(uses=None)
    parser.add_argument("--config", metavar="FILE", help="YAML file of flags; this line wins")
    if table.positional is not None:
        spelling = table.positional.spelling
        parser.add_argument("argument", nargs="?", metavar="MODEL", help=f"as {spelling}")
    defaults = table.config()
    for title, flags in table.sections:
        _add_flags(parser.add_argument_group(title), flags, defaults)
    for status in (Status.ACCEPTED, Status.REFUSED):
        rows = tuple(f for f in table.foreign if f.status is status)
        if rows:
            group = parser.add_argument_group(f"flags of other servers: {status}")
            _add_flags(group, rows, defaults)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Note(argparse.Action):
    """Appends a `_Use`, so that order and spelling survive."""

    def __init__(self, option_strings: Sequence[str], dest: str, flag: Flag, help: str) -> None:
        switch = flag.kind is Kind.SWITCH
        many = "+" if flag.kind is Kind.WORDS else None
        super().__init__(
            option_strings,
            "uses",
            nargs=0 if switch else many,
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
        if self.flag.kind is Kind.WORDS and isinstance(values, list):
            text = " ".join(values)
        use = _Use(self.flag, option_string or "", text)
        namespace.uses = [*(namespace.uses or []), use]


def _add_flags(group: argparse._ArgumentGroup, flags: tuple[Flag, ...], defaults: object) -> None:
    for flag in flags:
        text = flag.help + _default(flag, defaults)
        group.add_argument(*flag.spellings, action=_Note, flag=flag, help=text)
        if flag.negation:
            text = f"the opposite of {flag.spelling}"
            group.add_argument(flag.negation, action=_Note, flag=flag, help=text)


def _default(flag: Flag, defaults: object) -> str:
    """For the help: what holds without the flag, where that is a plain value."""
    if not flag.field or flag.kind is Kind.SWITCH or "default" in flag.help:
        return ""
    section, name = flag.field.split(".")
    value = getattr(getattr(defaults, section), name)
    if value in ("", "{}", -1):  # by model or machine: settled at the launch, and logged then
        return ""
    return f"; default: {value:g}" if isinstance(value, float) else f"; default: {value}"


def _from_environment(
    table: FlagTable[C], parser: argparse.ArgumentParser, environ: Mapping[str, str]
) -> list[_Use]:
    argv = [f"{flag}={environ[name]}" for name, flag in table.environment if environ.get(name)]
    return parser.parse_args(argv).uses or []


def _file_arguments(table: FlagTable[C], path: Path) -> list[str]:
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
        arguments += _file_argument(table, path, name, value)
    return arguments


def _file_argument(table: FlagTable[C], path: Path, name: str, value: object) -> list[str]:
    if name == "config":
        raise ConfigError(f"--config {path}: a file cannot name another file")
    if isinstance(value, bool):
        return [f"--{name}"] if value else _switched_off(table, path, name)
    if isinstance(value, (str, int, float)):
        return [f"--{name}={value}"]
    words = [v for v in value if isinstance(v, str)] if isinstance(value, list) else []
    is_list = any(f"--{name}" in f.spellings and f.kind is Kind.WORDS for f in table.flags)
    if is_list and words and isinstance(value, list) and len(words) == len(value):
        return [f"--{name}", *words]
    raise ConfigError(f"--config {path}: {name}: expected one value, found {value!r}")


def _switched_off(table: FlagTable[C], path: Path, name: str) -> list[str]:
    for flag in table.flags:
        if f"--{name}" in flag.spellings and flag.kind is Kind.SWITCH:
            return [flag.negation] if flag.negation else []
    raise ConfigError(f"--config {path}: {name}: false, but there is no such switch")


def _config_of(table: FlagTable[C], uses: Sequence[_Use]) -> C:
    sections = _as_dict(table.config())
    for use in uses:
        value = _value(use)
        if use.flag.field:
            section, name = use.flag.field.split(".")
            sections[section][name] = value
    try:
        return load_json(table.config, orjson.dumps(sections))
    except (WireError, orjson.JSONEncodeError) as e:
        raise ConfigError(f"command line: {e}") from None


def _as_dict(config: object) -> dict[str, dict[str, Value]]:
    assert dataclasses.is_dataclass(config) and not isinstance(config, type)
    return dataclasses.asdict(config)


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
    if use.flag.kind in (Kind.TEXT, Kind.WORDS):
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
