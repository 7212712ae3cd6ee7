"""`@function`: a Python function over a state becomes a program that can be run, once or many
times. Owns in which thread or on which loop the function itself runs; all else is the state's.

    run         plain: in the caller's thread          coroutine: on the background loop
    arun        plain: in a thread of its own          coroutine: on the caller's loop
    run_batch   plain: in a thread, at most so many    coroutine: on the background loop
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, overload

from ..client.background import background
from ..client.errors import ClientError, ProgramError
from .batch import PrefixGate, in_order, num_at_once
from .options import Options, read_options
from .run import Gate
from .state import State
from .threads import in_daemon_thread

Arguments = Mapping[str, Any] | Sequence[Any]


class Program:
    """A function over a state `s`, made by `function`.

    >>> @tr.function
    ... def count(s, upto):
    ...     s += "1, 2," + tr.gen("rest", max_tokens=upto, stop="\\n")
    >>> count.run(4)["rest"]
    '42'
    >>> [state["rest"] for state in count.run_batch([{"upto": 4}, {"upto": 8}])]
    ['42', '42']
    """

    def __init__(self, func: Callable[..., Any], bound: Mapping[str, Any] | None = None) -> None:
        """Raises ProgramError for a function that is no program."""
        names = list(inspect.signature(func).parameters)
        if not names or names[0] != "s":
            raise ProgramError(f"the first parameter of a program must be s, got {names[:1]}")
        self.func = func
        self.name = func.__name__
        self._parameters = frozenset(names)
        self._bound = dict(bound or {})
        self._is_coroutine = inspect.iscoroutinefunction(func)
        functools.update_wrapper(self, func)

    def bind(self, **arguments: Any) -> Program:
        """The same program with some arguments given."""
        return Program(self.func, {**self._bound, **arguments})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """With a state first: as a part of that program; else a run."""
        if args and isinstance(args[0], State):
            return self.func(*args, **{**self._bound, **kwargs})
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> State:
        """Arguments of the program, and options: those of `gen`'s sampling as defaults, `stream`,
        `backend`, `chat_template_kwargs`, `session_id`, `resume` (a trace or its file). A name that
        the function has for a parameter is the function's.

        Errors of requests are values: `state.error()`. With `stream=True` it returns at once.
        """
        options, state, body = self._prepare(args, kwargs, None)
        if options.is_streaming:
            if self._is_coroutine:
                background().start(self._on_loop(state, body, keeps=True))
            else:
                job = functools.partial(self._in_thread, state, body, keeps=True)
                threading.Thread(target=job, name="treadle-program", daemon=True).start()
            return state
        if self._is_coroutine:
            background().wait(self._on_loop(state, body, keeps=False))
        else:
            self._in_thread(state, body, keeps=False)
        return state

    async def arun(self, *args: Any, **kwargs: Any) -> State:
        """As `run`, from a coroutine. With `stream=True` it returns at once too."""
        options, state, body = self._prepare(args, kwargs, asyncio.get_running_loop())
        if self._is_coroutine:
            work = self._on_loop(state, body, keeps=options.is_streaming)
        else:
            state.be_plain()
            job = functools.partial(self._in_thread, state, body, keeps=options.is_streaming)
            work = in_daemon_thread(job)
        if options.is_streaming:
            state.task = asyncio.ensure_future(work)
            return state
        try:
            await work
        except asyncio.CancelledError:
            state.cancel()
            raise
        return state

    def run_batch(
        self,
        batch_arguments: Sequence[Arguments],
        *,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        **kwargs: Any,
    ) -> Any:
        """States in the order of `batch_arguments`, which are dictionaries or tuples; at most
        `num_threads` of them run at once. With `generator_style` they come one by one. Errors are
        values, also those of the program. What all prompts begin with is computed once first."""
        at_once = min(num_at_once(num_threads), max(1, len(batch_arguments)))
        gate = PrefixGate(len(batch_arguments)) if at_once > 1 else None
        jobs = [self._prepare(*_split(each, kwargs), None, gate) for each in batch_arguments]
        futures, stop = self._start(jobs, at_once)
        states = [state for _, state, _ in jobs]
        if generator_style:
            return _one_by_one(futures, states, stop)
        with _ending(states, stop):
            return in_order(futures, has_bar=progress_bar)

    def _prepare(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        home: asyncio.AbstractEventLoop | None,
        gate: Gate | None = None,
    ) -> tuple[Options, State, Callable[[], Any]]:
        options, arguments = read_options(kwargs, self._parameters)
        run = options.make_run(self.name)
        run.home = run.body_loop = home
        run.gate = gate
        state = State(run)
        body = functools.partial(self.func, state, *args, **{**self._bound, **arguments})
        return options, state, body

    def _start(
        self,
        jobs: Sequence[tuple[Options, State, Callable[[], Any]]],
        at_once: int,
    ) -> tuple[list[Future[State]], Callable[[], None]]:
        if self._is_coroutine:
            slots = asyncio.Semaphore(at_once)

            async def one(state: State, body: Callable[[], Any]) -> State:
                async with slots:
                    await self._on_loop(state, body, keeps=True)
                return state

            started = [background().start(one(state, body)) for _, state, body in jobs]
            return started, functools.partial(_cancel_all, started)

        def plain(state: State, body: Callable[[], Any]) -> State:
            self._in_thread(state, body, keeps=True)
            return state

        pool = ThreadPoolExecutor(at_once, thread_name_prefix="treadle-batch")
        futures = [pool.submit(plain, state, body) for _, state, body in jobs]
        return futures, functools.partial(pool.shutdown, wait=False, cancel_futures=True)

    def _in_thread(self, state: State, body: Callable[[], Any], *, keeps: bool) -> None:
        """`keeps`: errors of the program's own are values too, instead of raised."""
        try:
            with state.playing() as returns:
                returns(body())
            state.end()
            state.sync()
        except ClientError as error:
            _failed(state, error)
        except Exception as error:
            _failed(state, error)
            if not keeps:
                raise
        except BaseException:  # as by Ctrl-C: nothing goes on without its reader
            state.cancel()
            raise

    async def _on_loop(self, state: State, body: Callable[[], Any], *, keeps: bool) -> None:
        try:
            with state.playing() as returns:
                returns(await body())
            state.end()
            await state.settle()
        except ClientError as error:
            _failed(state, error)
        except Exception as error:
            _failed(state, error)
            if not keeps:
                raise
        except BaseException:
            state.cancel()
            raise


@overload
def function(func: Callable[..., Any], num_api_spec_tokens: int | None = None) -> Program: ...


@overload
def function(
    func: None = None, num_api_spec_tokens: int | None = None
) -> Callable[[Callable[..., Any]], Program]: ...


def function(func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """Makes a program of a function, plain or `async`, whose first parameter is `s`.
    `num_api_spec_tokens` is taken for the sake of other programs and has no effect.

    >>> @tr.function
    ... async def double(s, word):
    ...     s += word + " means" + tr.gen("meaning", max_tokens=8)
    ...     first = await s.read("meaning")
    ...     s += ". Shorter:" + tr.gen("short", max_tokens=4)
    ...     return first
    >>> double.run("weft").ret_value
    '42'
    """
    if func is None:
        return function
    return Program(func)


def _failed(state: State, error: Exception) -> None:
    """Nobody will read what else it has asked for."""
    state.failed(error)
    state.cancel()
    state.end()


def _split(each: Arguments, kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(each, Mapping):
        return (), {**kwargs, **each}
    return each, kwargs


def _cancel_all(futures: Sequence[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


@contextlib.contextmanager
def _ending(states: Sequence[State], stop: Callable[[], None]) -> Iterator[None]:
    """Nothing goes on without its reader, who may leave early or be interrupted."""
    try:
        yield
    except BaseException:
        for state in states:
            state.cancel()
        raise
    finally:
        stop()


def _one_by_one(
    futures: Sequence[Future[State]], states: Sequence[State], stop: Callable[[], None]
) -> Iterator[State]:
    with _ending(states, stop):
        for future in futures:
            yield future.result()
