"""One log format for all processes: time, level, process and rank, module, then `event key=value`.

Owns the set-up of the root logger and the spelling of key-value pairs. Everything goes to standard
error; prompts and outputs are never logged.
"""

from __future__ import annotations

import logging
import sys


def setup_logging(level: str, process: str) -> None:
    """Replaces the root logger's handlers. `process` is the role with its rank, as `worker0`."""
    handler = logging.StreamHandler(sys.stderr)
    text = f"%(asctime)s %(levelname)s [{process}] %(name)s: %(message)s"
    handler.setFormatter(_Formatter(text, datefmt="%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def event(name: str, fields: dict[str, object]) -> str:
    """`name key=value key=value`, one line: values with spaces or line breaks are quoted, floats
    have four digits.
    """
    return " ".join([name, *(f"{key}={_spell(value)}" for key, value in fields.items())])


class _Formatter(logging.Formatter):
    """Module names without the package, which is the same on every line, and without `__main__`,
    which every child process has.
    """

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "__main__":
            record.name = f"procs.{record.module}"
        record.name = record.name.removeprefix("treadle.srt.").removeprefix("treadle.")
        return super().format(record)


def _spell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_plain = text != "" and " " not in text and text.isprintable()
    return text if is_plain else repr(text)
