"""What one call within a chat template may allocate: the calls that make much of little, bounded.

A width, a count or a replacement can make gigabytes of a short text in one call, between two ticks
of the clock. Arguments are looked at before the call; what is refused here no template needs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import jinja2
from jinja2 import filters
from jinja2.nodes import EvalContext

MOST_COUNT = 1 << 20  # of a width, indent, batch: a number given to a filter or text method
MEASURED = ("batch", "center", "indent", "round", "slice", "tojson", "truncate")
# Slow on long texts, and of no use in a prompt.
WITHOUT = ("pprint", "random", "striptags", "urlize", "wordcount", "wordwrap", "xmlattr")
# In a format: a large width, or one that comes from the arguments.
_WIDE = re.compile(r"\d{7}|%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")

Filter = Callable[..., object]


def bounded(known: Mapping[str, Filter], most_chars: int) -> dict[str, Filter]:
    """The filters of `known` without the useless, and with a bound where one is needed: beyond it
    they raise jinja2.TemplateRuntimeError."""
    found = {name: known[name] for name in known if name not in WITHOUT}
    found.update({name: _measured(known[name]) for name in MEASURED if name in known})

    @jinja2.pass_eval_context
    def join(
        context: EvalContext, value: Iterable[object], d: str = "", attribute: str | None = None
    ) -> object:
        items = list(value)
        check_join(str(d), items, most_chars)
        return filters.sync_do_join(context, items, d, attribute)

    @jinja2.pass_eval_context
    def replace(context: EvalContext, s: object, old: str, new: str, count: int = -1) -> object:
        check_replace(str(s), str(old), str(new), most_chars)
        return filters.do_replace(context, str(s), old, new, count if count >= 0 else None)

    def format_text(value: object, *args: object, **named: object) -> object:
        check_format(str(value))
        return filters.do_format(str(value), *args, **named)

    return {**found, "join": join, "replace": replace, "format": format_text}


def check_method(
    text: str, name: str, args: Sequence[object], named: Mapping[str, object], most_chars: int
) -> None:
    """Before `text.name(*args, **named)`."""
    check_counts((*args, *named.values()))
    if name in ("format", "format_map"):
        check_format(text)
    elif name == "replace" and len(args) > 1:
        check_replace(text, str(args[0]), str(args[1]), most_chars)
    elif name == "join" and args and isinstance(args[0], list | tuple):
        check_join(text, args[0], most_chars)
    elif name in ("translate", "join", "replace"):
        raise jinja2.TemplateRuntimeError(f"it calls {name} in a way that cannot be bounded")


def check_counts(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > MOST_COUNT:
            raise jinja2.TemplateRuntimeError(f"it counts to {value:.3g}, at most {MOST_COUNT}")


def check_format(text: str) -> None:
    if _WIDE.search(text):
        raise jinja2.TemplateRuntimeError("it makes a text by a format without a bound")


def check_replace(text: str, old: str, new: str, most_chars: int) -> None:
    times = text.count(old)  # of "": between all characters
    if times * len(new) > most_chars:
        raise jinja2.TemplateRuntimeError(f"it makes a text of more than {most_chars} characters")


def check_join(between: str, items: Sequence[object], most_chars: int) -> None:
    size = len(between) * len(items) + sum(len(x) for x in items if isinstance(x, str))
    if size > most_chars:
        raise jinja2.TemplateRuntimeError(f"it makes a text of more than {most_chars} characters")


def _measured(function: Filter) -> Filter:
    @functools.wraps(function)  # with the marks by which jinja2 passes its context
    def measured(*args: object, **named: object) -> object:
        check_counts((*args, *named.values()))
        return function(*args, **named)

    return measured
