"""A jinja2 environment in which the template of a stranger may run.

Owns the bounds that the library's own sandbox lacks. A template comes with a model file or with a
flag; it may be wrong, and a wrong one must cost a client an error, never the server its time:

    time    a tick is planted in every loop, macro and block; it compares the CPU time of the
            thread with a limit. All else that a template can do is bounded by the sandbox's own
            limit on range() or by the recursion limit.
    size    results of + * ** and ~ and the whole output are measured; calls that make much of
            little are bounded (`chat_bounds.py`)

Invariant: a render ends within about TIME_LIMIT_S of CPU time, with text or with an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from .chat_bounds import bounded, check_format, check_method

TIME_LIMIT_S = 2.0
TEXT_LIMIT = 1 << 26  # characters of the output and of one string within: 4 x the largest body
ITEM_CHARS = 16  # what an item of a list counts as
INTEGER_BITS = 1 << 16

# Template text cannot spell these names, so it can neither call nor replace the filters.
_TICK, _JOIN = "treadle:tick", "treadle:join"


class BoundedTemplate:
    """A compiled template. Renders are serialised: they hold the interpreter anyway."""

    __slots__ = ("_clock", "_lock", "_template")

    def __init__(
        self,
        source: str,
        filters: Mapping[str, Callable[..., object]],
        functions: Mapping[str, Callable[..., object]],
    ) -> None:
        """Raises: jinja2.TemplateSyntaxError."""
        self._lock = threading.Lock()
        self._clock = _Clock()
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters.update({**filters, _TICK: self._clock.tick, _JOIN: _join})
        environment.filters = bounded(environment.filters, TEXT_LIMIT)
        environment.globals.update(functions)
        environment.globals.pop("lipsum", None)  # it makes any amount of text
        tree = environment.parse(source)
        _PlantTicks().visit(tree)
        tree.set_environment(environment)
        self._template = environment.from_string(tree)

    def render(self, values: Mapping[str, object]) -> str:
        """Raises: jinja2.TemplateError and whatever Python's operators raise on the values."""
        chunks: list[str] = []
        length = 0
        with self._lock:
            self._clock.start()
            for chunk in self._template.generate(values):
                length += len(chunk)
                _check_size(length)
                self._clock.check()
                chunks.append(chunk)
        return "".join(chunks)


class _Clock:
    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = 0.0

    def start(self) -> None:
        self._end = time.thread_time() + TIME_LIMIT_S

    def check(self) -> None:
        if time.thread_time() > self._end:
            raise jinja2.TemplateRuntimeError(f"it ran longer than {TIME_LIMIT_S:g} s")

    @jinja2.pass_context  # also keeps the compiler from folding it into a constant
    def tick(self, context: Context, value: object) -> object:
        self.check()
        return value


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call(__self, __context: Context, __obj: object, *args: object, **named: object) -> object:  # noqa: N805
        """As the library calls it; the odd names keep those of keyword arguments free."""
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            check_method(owner, getattr(method, "__name__", ""), args, named, TEXT_LIMIT)
        return super().call(__context, __obj, *args, **named)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        if operator == "*":
            _check_size(max(_repeated(left, right), _repeated(right, left)))
        if operator == "%" and isinstance(left, str):
            check_format(left)
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_integer(left.bit_length() * right)
        result: object = super().call_binop(context, operator, left, right)
        if isinstance(result, int):
            _check_integer(result.bit_length())
        elif isinstance(result, str | list | tuple):
            _check_size(len(result) * _weight(result))
        return result


class _PlantTicks(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._plant(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._plant(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._plant(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        return self._plant(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), _JOIN, [], [], None, None, lineno=node.lineno)

    def _plant(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        self.generic_visit(node)
        tick = nodes.Filter(nodes.Const(None), _TICK, [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node


class _Generation(Extension):
    """`{% generation %}` marks the text to train on in some templates; here it is its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@jinja2.pass_context
def _join(context: Context, parts: Iterable[object]) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _repeated(value: object, times: object) -> int:
    if isinstance(value, str | list | tuple) and isinstance(times, int):
        return len(value) * times * _weight(value)
    return 0


def _weight(value: object) -> int:
    """Characters that an item counts as."""
    return 1 if isinstance(value, str) else ITEM_CHARS


def _check_size(length: int) -> None:
    if length > TEXT_LIMIT:
        raise jinja2.TemplateRuntimeError(f"it makes a text of more than {TEXT_LIMIT} characters")


def _check_integer(bits: int) -> None:
    if bits > INTEGER_BITS:
        raise jinja2.TemplateRuntimeError(f"it makes a number of more than {INTEGER_BITS} bits")
