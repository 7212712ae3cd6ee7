"""The words of a program: functions that make expressions. Names and arguments are those of
SGLang's frontend, so its programs run with another import line; what it lacks comes after a `*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ..client.errors import ProgramError, Unsupported
from .choices import ChoicesMethod, choices_method
from .ir import (
    Agent,
    Budget,
    Chain,
    Expr,
    Gen,
    History,
    Role,
    RoleBegin,
    RoleEnd,
    Select,
    Separate,
    ToolMessage,
    as_expr,
)
from .options import read_logprobs, stop_strings
from .sampling import Sampling, dtype_regex, schema_text
from .schema import schema_of
from .tools import Tool, ToolCall, Tools, as_content

Stop = str | list[str] | tuple[str, ...] | None
ToolList = Tools | Iterable[Tool | Callable[..., object]]


# fmt: off
def gen(
    name: str | None = None, max_tokens: int | None = None, min_tokens: int | None = None,
    n: int | None = None, stop: Stop = None, stop_token_ids: list[int] | None = None,
    stop_regex: str | list[str] | None = None, temperature: float | None = None,
    top_p: float | None = None, top_k: int | None = None, min_p: float | None = None,
    frequency_penalty: float | None = None, presence_penalty: float | None = None,
    ignore_eos: bool | None = None, return_logprob: bool | None = None,
    logprob_start_len: int | None = None, top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None, dtype: type | str | None = None,
    choices: Sequence[str] | None = None, choices_method: str | ChoicesMethod | None = None,
    regex: str | None = None, json_schema: str | Mapping[str, Any] | None = None,
    *,
    ebnf: str | None = None, seed: int | None = None, repetition_penalty: float | None = None,
    priority: int | None = None, tools: ToolList | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
) -> Expr:
    """Generated text, kept as the variable `name`. What is not given is the run's, then the
    server's. With `n` > 1 the variable is a list, and the program goes on from the first. `choices`
    makes it a `select`. Raises ProgramError for arguments that exclude one another.

    >>> f = tr.function(lambda s: s.append("Age: " + tr.gen("age", dtype=int, max_tokens=4)))
    >>> f.run()["age"]
    '42'
    """
    forms = {"dtype": dtype, "choices": choices, "regex": regex, "json_schema": json_schema,
             "ebnf": ebnf}  # fmt: skip
    given = [form for form, value in forms.items() if value is not None]
    if len(given) > 1:
        raise ProgramError(f"gen: {' and '.join(given)} exclude one another")
    if choices is not None:
        return select(name, choices, choices_method=choices_method)
    sampling = Sampling(
        max_tokens, min_tokens, n, stop_strings(stop), stop_token_ids, stop_regex, temperature,
        top_p, top_k, min_p, frequency_penalty, presence_penalty, repetition_penalty, ignore_eos,
        seed, regex if dtype is None else dtype_regex(dtype), schema_text(json_schema), ebnf,
        priority,
    )  # fmt: skip
    logprobs = read_logprobs(
        return_logprob, logprob_start_len, top_logprobs_num, return_text_in_logprobs
    )
    return Gen(name, sampling, logprobs, None if tools is None else as_tools(tools), tool_choice)
# fmt: on


def gen_int(name: str | None = None, max_tokens: int | None = None, **arguments: Any) -> Expr:
    """`gen` of a whole number; its value is text.

    >>> tr.function(lambda s: s.append("Age: " + tr.gen_int("age"))).run()["age"]
    '42'
    """
    return gen(name, max_tokens, dtype=int, **arguments)


def gen_string(name: str | None = None, max_tokens: int | None = None, **arguments: Any) -> Expr:
    """`gen` of a string in quotes, as JSON has it.

    >>> isinstance(tr.gen_string("title"), tr.Expr)
    True
    """
    return gen(name, max_tokens, dtype=str, **arguments)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: str | ChoicesMethod | None = None,
) -> Expr:
    """The one of `choices` that the model prefers, by the log-probabilities of their tokens.
    `temperature` must be 0: nothing is drawn.

    >>> f = tr.function(lambda s: s.append("Is it so? " + tr.select("a", ["yes", "no"])))
    >>> f.run()["a"]
    'yes'
    """
    if not choices:
        raise ProgramError("select needs at least one choice")
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise ProgramError(f"choices must be a list of strings, got {choices!r:.80}")
    if temperature != 0:
        raise ProgramError(f"select draws nothing: temperature must be 0, got {temperature}")
    return Select(name, tuple(choices), _method(choices_method))


_method = choices_method


def system(expr: Expr | str | None = None) -> Expr:
    """A system turn.

    >>> isinstance(tr.system("Be brief."), tr.Expr)
    True
    """
    return _turn("system", expr)


def user(expr: Expr | str | None = None) -> Expr:
    """A user's turn.

    >>> f = tr.function(lambda s: s.append(tr.user("Hi") + tr.assistant(tr.gen("a"))))
    >>> f.run().messages()[0]
    {'role': 'user', 'content': 'Hi'}
    """
    return _turn("user", expr)


def assistant(expr: Expr | str | None = None) -> Expr:
    """A turn of the model, where a chat generates.

    >>> f = tr.function(lambda s: s.append(tr.user("Hi") + tr.assistant(tr.gen("a"))))
    >>> f.run().messages()[1]
    {'role': 'assistant', 'content': '42'}
    """
    return _turn("assistant", expr)


def _turn(role: Role, expr: Expr | str | None) -> Expr:
    if expr is None:
        raise ProgramError(f"{role} needs an expression; {role}_begin and {role}_end stand alone")
    return Chain((RoleBegin(role), as_expr(expr), RoleEnd(role)))


def system_begin() -> Expr:
    """Begins a system turn.

    >>> isinstance(tr.system_begin() + "Be brief." + tr.system_end(), tr.Expr)
    True
    """
    return RoleBegin("system")


def system_end() -> Expr:
    """Ends a system turn.

    >>> isinstance(tr.system_begin() + "Be brief." + tr.system_end(), tr.Expr)
    True
    """
    return RoleEnd("system")


def user_begin() -> Expr:
    """Begins a user's turn.

    >>> isinstance(tr.user_begin() + "Hi" + tr.user_end(), tr.Expr)
    True
    """
    return RoleBegin("user")


def user_end() -> Expr:
    """Ends a user's turn.

    >>> isinstance(tr.user_begin() + "Hi" + tr.user_end(), tr.Expr)
    True
    """
    return RoleEnd("user")


def assistant_begin() -> Expr:
    """Begins a turn of the model.

    >>> isinstance(tr.assistant_begin() + tr.gen("a") + tr.assistant_end(), tr.Expr)
    True
    """
    return RoleBegin("assistant")


def assistant_end() -> Expr:
    """Ends a turn of the model.

    >>> isinstance(tr.assistant_begin() + tr.gen("a") + tr.assistant_end(), tr.Expr)
    True
    """
    return RoleEnd("assistant")


def separate_reasoning(expr: Expr, model_type: str | None = None) -> Expr:
    """Generations inside leave their reasoning in `NAME_reasoning_content`. `model_type`: the
    parser that tells it apart in a text, by default the server's; of a chat the server knows.

    >>> f = tr.function(lambda s: s.append("2 + 2 =" + tr.separate_reasoning(tr.gen("a"))))
    >>> f.run()["a_reasoning_content"]
    ''
    """
    return Separate(as_expr(expr), model_type)


def tool_result(call: ToolCall | str, value: object) -> Expr:
    """The answer to a call that a `gen(..., tools=...)` has made; `call` or its id.

    >>> isinstance(tr.tool_result("c1", 42), tr.Expr)
    True
    """
    return ToolMessage(call.id if isinstance(call, ToolCall) else call, as_content(value))


def history(messages: Iterable[Mapping[str, Any]]) -> Expr:
    """Messages of a conversation that was had elsewhere, in the form of the chat API.

    >>> said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    >>> f = tr.function(lambda s: s.append(tr.history(said) + tr.user("And?") + tr.agent("a")))
    >>> [message["role"] for message in f.run().messages()]
    ['user', 'assistant', 'user', 'assistant']
    """
    return History(tuple(dict(message) for message in messages))


def agent(
    name: str | None = None,
    tools: ToolList = (),
    max_turns: int = 16,
    on_tool: Callable[..., object] | None = None,
    *,
    max_total_tokens: int | None = None,
    answer: Mapping[str, Any] | type | None = None,
    max_tokens: int | None = None,
    stop: Stop = None,
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    priority: int | None = None,
) -> Expr:
    """Turns of the model and its tools until an answer without calls, which becomes `name`.

    Calls of one turn run at once. What a tool raises, a time limit, unknown names and bad arguments
    are told to the model. `on_tool(call)` is asked before each call, in a thread if it is a plain
    function; what it returns, unless None, is the result instead. `max_turns` and
    `max_total_tokens` (generated ones) bound it all: BudgetExceeded. `answer`, a JSON schema or a
    dataclass or another type, is the form of the final answer.

    >>> def now() -> str:
    ...     '''The time of day.'''
    ...     return "noon"
    >>> f = tr.function(lambda s: s.append(tr.user("Late?") + tr.agent("answer", [now])))
    >>> f.run()["answer"]
    '42'
    """
    if max_turns < 1:
        raise ProgramError(f"max_turns must be at least 1, got {max_turns}")
    sampling = Sampling(
        max_new_tokens=max_tokens, stop=stop_strings(stop), temperature=temperature, top_p=top_p,
        seed=seed, priority=priority,
    )  # fmt: skip
    if answer is not None:
        _check_answer(answer)
    budget = Budget(max_turns, max_total_tokens)
    return Agent(name, as_tools(tools), sampling, budget, on_tool, answer)


def _check_answer(answer: Mapping[str, Any] | type) -> None:
    """Before a turn is paid for. Raises ProgramError for what has no schema."""
    try:
        schema_text(answer if isinstance(answer, Mapping) else schema_of(answer))
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise ProgramError(f"agent: answer must be a JSON schema or a type: {error}") from None


def as_tools(tools: ToolList) -> Tools:
    return tools if isinstance(tools, Tools) else Tools(tools)


def image(path: object) -> NoReturn:
    """Raises Unsupported: the models are text models.

    >>> tr.image("loom.png")
    Traceback (most recent call last):
    treadle.client.errors.Unsupported: image: no model here reads images
    """
    raise Unsupported("image: no model here reads images")


def video(path: object, num_frames: int = 0) -> NoReturn:
    """Raises Unsupported: the models are text models.

    >>> tr.video("loom.mp4", 8)
    Traceback (most recent call last):
    treadle.client.errors.Unsupported: video: no model here reads videos
    """
    raise Unsupported("video: no model here reads videos")
