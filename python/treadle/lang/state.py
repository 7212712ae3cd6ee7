"""`State`: what a program writes to and reads from.

Writing returns at once: the work is queued on the state's branch. Reading waits for what is read.
A plain program reads with `s["name"]`; one that is a coroutine awaits `s.read("name")`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..client.background import background
from ..client.errors import ProgramError, Unsupported
from . import ir
from .branch import Branch, Evaluate, Fork, Gather
from .cells import Cell, full, settled, wait
from .events import Event, TextEvent
from .forks import Forks
from .ir import Expr, Role, as_expr
from .prompt import Prompt
from .run import Run
from .tools import ToolCall
from .trace import Trace, trace_of

Json = dict[str, Any]


class State:
    """One branch of a running program.

    >>> @tr.function
    ... def capital(s, country):
    ...     s += tr.user(f"The capital of {country}?")
    ...     s += tr.assistant(tr.gen("city", max_tokens=8))
    >>> state = capital.run("France")
    >>> state["city"], state.error()
    ('42', None)
    """

    def __init__(
        self,
        run: Run,
        branch: Branch | None = None,
        inherited: Mapping[str, Cell] | None = None,
        origin: State | None = None,
    ) -> None:
        self._run = run
        self._branch = branch or Branch(run)
        self._inherited = dict(inherited or {})  # as they were at the fork
        self._cells = dict(self._inherited)
        self._origin = origin
        self.task: asyncio.Future[None] | None = None  # of a program that streams on its loop
        self._body_error: Exception | None = None

    # Writing

    def __iadd__(self, other: Expr | str | Sequence[Expr | str]) -> State:
        self.append(other)
        return self

    def append(self, other: Expr | str | Sequence[Expr | str]) -> State:
        """The same as `s += other`, as an expression. Raises ProgramError for one that sets a
        variable twice.

        >>> tr.function(lambda s: s.append("1, 2," + tr.gen("x"))).run()["x"]
        '42'
        """
        expr = as_expr(other)
        names = list(expr.names())
        cells = {name: Cell() for name in names}
        if len(cells) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ProgramError(f"one expression sets the variable {twice!r} twice")
        self._cells.update(cells)
        self._branch.submit(Evaluate(expr, cells))
        return self

    def system(self, expr: Expr | str | None = None) -> Any:
        """A turn, or without an expression a block: `with s.system(): s += ...`."""
        return self._role("system", expr)

    def user(self, expr: Expr | str | None = None) -> Any:
        return self._role("user", expr)

    def assistant(self, expr: Expr | str | None = None) -> Any:
        return self._role("assistant", expr)

    def _role(self, role: Role, expr: Expr | str | None) -> Any:
        if expr is None:
            return self._block(ir.RoleBegin(role), ir.RoleEnd(role))
        return self.append(ir.Chain((ir.RoleBegin(role), as_expr(expr), ir.RoleEnd(role))))

    def var_scope(self, name: str) -> contextlib.AbstractContextManager[State]:
        """All text that is appended in the block becomes the variable `name`."""
        return self._block(ir.ScopeBegin(name), ir.ScopeEnd(name))

    def var_scope_begin(self, name: str) -> None:
        self.append(ir.ScopeBegin(name))

    def var_scope_end(self, name: str) -> None:
        self.append(ir.ScopeEnd(name))

    @contextlib.contextmanager
    def _block(self, begin: Expr, end: Expr) -> Iterator[State]:
        self.append(begin)
        yield self
        self.append(end)

    def set_var(self, name: str, value: Any) -> None:
        self._cells[name] = full(value)
        background().call(self._branch.log.wake)  # whoever watches it has all

    def keep_warm(self, seconds: float | None = 60.0) -> None:
        """Hints that the run will pause, for a slow tool or a person: whenever no request was made
        for `seconds`, the server is asked for the prefix without a new token, so that it stays in
        its cache. Ends with the program, or with None. Raises ProgramError for 0 seconds or
        less."""
        if seconds is not None and not seconds > 0:
            raise ProgramError(f"keep_warm needs more than 0 seconds, got {seconds}")
        self._branch.keep_warm(seconds)

    # Reading

    def __getitem__(self, name: str) -> Any:
        """Waits for this variable only. Raises the error that its generation met, or that ended
        the branch before an expression could set it; KeyError for one that no expression sets."""
        return self._full(name).get()

    def __contains__(self, name: str) -> bool:
        return name in self._cells

    def get_var(self, name: str) -> Any:
        return self[name]

    def get_meta_info(self, name: str) -> Any:
        """Facts of the generation: `prompt_tokens`, `completion_tokens`, `cached_tokens`,
        `replayed_tokens`, `finish_reason`, log-probabilities if asked for; `first_token_latency` of
        texts and of streams; a list for several outputs."""
        cell = self._full(name)
        cell.get()
        return cell.meta

    def tool_calls(self, name: str) -> list[ToolCall]:
        """Of a generation with `tools`, to be answered by `tool_result`s."""
        meta = self.get_meta_info(name)
        return list((meta or {}).get("tool_calls", ()))

    async def read(self, name: str) -> Any:
        """As `s[name]`, for programs that are coroutines."""
        if self._never_comes(name):
            await self.settle()
            self._raise_error()
        cell = self._cell(name)
        await settled(cell.done)
        return cell.get()

    def _cell(self, name: str) -> Cell:
        if name not in self._cells:
            known = ", ".join(self._cells) or "none"
            raise KeyError(f"no variable {name!r} is set here; set are: {known}")
        return self._cells[name]

    def _never_comes(self, name: str) -> bool:
        """A branch may end, cancelled or in an error, before an expression sets the variable."""
        branch = self._branch
        return name not in self._cells and (branch.is_ending or branch.error is not None)

    def _full(self, name: str) -> Cell:
        if self._never_comes(name):
            self._raise_error()
        cell = self._cell(name)
        wait(cell.done, self._run.body_loop, f"await s.read({name!r})")
        return cell

    def sync(self) -> State:
        """Waits until everything so far has run or failed."""
        wait(self._branch.idle(), self._run.body_loop, "await s.settle()")
        return self

    async def settle(self) -> State:
        """As `sync`, for programs that are coroutines."""
        await settled(self._branch.idle())
        return self

    @property
    def ret_value(self) -> Any:
        """What the program's function returned, once it has; None after an error, and of a fork."""
        return self._run.returned() if self._origin is None else None

    def text(self) -> str:
        """All that was appended and generated. Of a chat each turn begins with its role; for what
        the model sees see `token_ids`."""
        return self.sync()._branch.transcript.shown

    def messages(self) -> list[Json]:
        """Of a chat, in the form of the chat API; [] for a text."""
        return self.sync()._branch.transcript.all_messages()

    def prompt(self) -> Prompt | None:
        """What the next generation would go on from."""
        return self.sync()._branch.transcript.so_far()

    def error(self) -> Exception | None:
        """What ended the branch early; None when all is well."""
        return self._body_error or self.sync()._branch.error

    # Watching

    async def aevents(self) -> AsyncIterator[Event]:
        """Everything that happens, from the beginning; needs `run(stream=True)`. Raises
        ProgramError in the program itself, which would wait for its own end."""
        self._check_watched()
        async for event in self._events(lambda: False):
            yield event

    async def _events(self, has_all: Callable[[], bool]) -> AsyncIterator[Event]:
        events = self._branch.log.follow(has_all)
        while (event := await asyncio.wrap_future(background().start(_next(events)))) is not None:
            yield event

    def events(self) -> Iterator[Event]:
        """The same for plain programs."""
        self._check_watched()
        events = self._branch.log.follow()
        while (event := background().wait(_next(events))) is not None:
            yield event

    def text_iter(self, var: str | None = None) -> Iterator[str]:
        """Pieces of a variable's text up to its end, or of all text, as they come; needs
        `run(stream=True)`. Raises the error that the variable met, or that ended the branch, and
        KeyError for a variable that no expression sets."""
        self._check_watched(var)
        events = self._branch.log.follow(self._has_all(var))
        while (event := background().wait(_next(events))) is not None:
            if isinstance(event, TextEvent) and (var is None or event.name == var):
                yield event.text
        if var is None:
            self._raise_error()
        else:
            self[var]

    async def text_async_iter(
        self, var: str | None = None, return_meta_data: bool = False
    ) -> AsyncIterator[Any]:
        """As `text_iter`. With `return_meta_data` pairs of text and meta; the last pair, of the
        variable's whole meta, has no text."""
        self._check_watched(var)
        async for event in self._events(self._has_all(var)):
            if isinstance(event, TextEvent) and (var is None or event.name == var):
                yield (event.text, {}) if return_meta_data else event.text
        if var is not None:
            await self.read(var)
            if return_meta_data:
                yield "", self.get_meta_info(var)
        else:
            await self.settle()
            self._raise_error()

    def _has_all(self, var: str | None) -> Callable[[], bool]:
        """Whether the variable is complete."""
        return lambda: var is not None and var in self._cells and self._cells[var].done.done()

    def _check_watched(self, var: str | None = None) -> None:
        if not self._run.is_streaming:
            raise ProgramError("events need a run that streams: run(..., stream=True)")
        if not self._run.is_in_body() or self._branch.is_ending:
            return
        if var is None:
            raise ProgramError(
                "the program would wait for its own end: watch one variable, text_iter(var), or a "
                "branch that was joined"
            )
        self._cell(var)

    def _raise_error(self) -> None:
        if (error := self.error()) is not None:
            raise error

    # Branching

    def fork(self, size: int = 1, position_ids_offset: Sequence[int] | None = None) -> Forks:
        """`size` states that go on from here. Their common prefix is put into the server's cache
        first, so each of them takes it from there."""
        if position_ids_offset is not None:
            raise Unsupported("position_ids_offset: positions are the server's")
        if size < 1:
            raise ProgramError(f"fork needs at least 1 branch, got {size}")
        branches = [Branch(self._run, self._branch) for _ in range(size)]
        self._branch.children += branches
        self._branch.submit(Fork(branches))
        return Forks(self, [State(self._run, b, self._cells, self) for b in branches])

    def copy(self) -> State:
        """A fork of one, which nobody joins."""
        return self.fork(1)[0]

    def gather(self, children: Sequence[State]) -> None:
        """See `Forks.join`. Raises ProgramError for the state itself, which cannot wait for it."""
        if any(child is self for child in children):
            raise ProgramError("a branch cannot gather itself")
        names = {name for child in children for name in child._new_names(self)}
        cells: dict[str, tuple[Cell, list[Cell]]] = {}
        for name in sorted(names):
            sources = [child._cells[name] for child in children if name in child._cells]
            cells[name] = (Cell(), sources)
        self._branch.submit(Gather([child._branch for child in children], cells))
        self._cells.update({name: target for name, (target, _) in cells.items()})

    def _new_names(self, parent: State) -> list[str]:
        """Those set since the branch left `parent`, who may have set them anew since then."""
        top = self
        while top._origin is not None and top._origin is not parent:
            top = top._origin
        left = top._inherited if top._origin is parent else self._inherited
        known = [left.get, parent._cells.get]
        return [
            name
            for name, cell in self._cells.items()
            if all(get(name) is not cell for get in known)
        ]

    # Ending

    def cancel(self) -> None:
        """Ends what runs, on the server too; what waits fails with Cancelled. Forks are cancelled
        with it."""
        self._branch.cancel()
        self._run.cancel()

    def end(self) -> None:
        """The program has written all it will write: watchers see the end once it has run."""
        self._branch.end()

    def playing(self) -> contextlib.AbstractContextManager[Callable[[Any], None]]:
        """Around the program's function: see `Run.playing`."""
        return self._run.playing()

    def be_plain(self) -> None:
        """The program is a plain function in a thread of its own, so it may block."""
        self._run.body_loop = None

    def failed(self, error: Exception) -> None:
        """The program itself ended in an error, which becomes the state's."""
        self._body_error = error

    def close(self) -> None:
        """Cancels what runs, and tells the server that the session and those of its forks are over,
        so it may give up what it keeps for them. Variables stay readable."""
        self.cancel()
        background().wait(self._close())

    async def aclose(self) -> None:
        """As `close`, for programs that are coroutines."""
        self.cancel()
        await asyncio.wrap_future(background().start(self._close()))

    async def _close(self) -> None:
        pending = [self._branch]
        sessions = []
        while pending:
            branch = pending.pop()
            pending += branch.children
            sessions.append(branch.session)
        await self._run.backend.close_sessions(sessions)

    def __enter__(self) -> State:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def session_id(self) -> str:
        return self._branch.session.id

    def save_trace(self, path: str | Path) -> Path:
        """Everything the run did, its forks included, as one JSON file: see `treadle trace`."""
        return self.trace().save(path)

    def trace(self) -> Trace:
        """What the run did so far."""
        self.sync()
        values = {name: cell.value for name, cell in self._cells.items() if cell.done.done()}
        return trace_of(self._run, values, self.error())


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)
