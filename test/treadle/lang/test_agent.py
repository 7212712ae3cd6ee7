"""The agent loop: turns, calls at once, failures told, budgets, events, forms of answers."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import META, FakeBackend, calling
from treadle.lang.backend import Answer


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def solve(backend: FakeBackend, *turns: Any, tools: Any = (add,), **options: Any) -> tr.State:
    """An agent that answers `turns` one after another."""
    left = iter(turns)
    backend.reply = lambda request: next(left)
    stream = options.pop("stream", False)
    parts = [tr.user("1 + 2?"), tr.agent("answer", tools, **options)]
    return tr.function(lambda s: s.append(parts)).run(stream=stream)


def results(state: tr.State) -> list[str]:
    return [m["content"] for m in state.messages() if m["role"] == "tool"]


def test_calls_are_run_and_their_results_go_back(backend: FakeBackend):
    state = solve(backend, calling(("add", '{"a": 1, "b": 2}')), "It is 3.")
    assert state["answer"] == "It is 3."
    assert [m["role"] for m in state.messages()] == ["user", "assistant", "tool", "assistant"]
    assert results(state) == ["3"]
    first, second = (request.prompt for _, request in backend.asked)
    assert first.tools == second.tools and first.tools[0]["function"]["name"] == "add"
    assert second.messages[:1] == first.messages and second.messages[2]["tool_call_id"] == "c0"
    meta = state.get_meta_info("answer")
    assert (meta["turns"], meta["num_tool_calls"], meta["cached_tokens"]) == (2, 1, 8)


def test_turns_are_not_cut_at_the_default_length_of_a_generation(backend: FakeBackend):
    solve(backend, "3")
    solve(backend, "3", max_tokens=9)
    lengths = [request.sampling.max_new_tokens for _, request in backend.asked]
    assert lengths == [None, 9]


def test_calls_of_one_turn_run_at_once_and_answer_in_order(backend: FakeBackend):
    both = threading.Barrier(2, timeout=60)

    def meet(n: int) -> int:
        """Meet."""
        both.wait()
        return n

    state = solve(backend, calling(("meet", '{"n": 1}'), ("meet", '{"n": 2}')), "met", tools=[meet])
    assert state["answer"] == "met" and results(state) == ["1", "2"]


def test_failures_are_told_and_the_loop_goes_on(backend: FakeBackend):
    def fails(x: int) -> str:
        """Fail."""
        raise RuntimeError("no luck")

    calls = calling(("fails", '{"x": 1}'), ("fails", '{"x": "a"}'), ("other", "{}"), ("fails", "{"))
    state = solve(backend, calls, "I give up.", tools=[fails])
    assert state["answer"] == "I give up."
    told = results(state)
    assert told[0] == "error: RuntimeError: no luck"
    assert "must be an integer" in told[1] and "no tool 'other'" in told[2]
    assert "not valid JSON" in told[3]


def test_a_slow_tool_is_given_up(backend: FakeBackend):
    never = threading.Event()

    @tr.tool(timeout_s=0.02)
    def slow() -> str:
        """Wait."""
        never.wait()
        return ""

    state = solve(backend, calling(("slow", "{}")), "too slow", tools=[slow])
    never.set()
    assert state["answer"] == "too slow" and "longer than 0.02 s" in results(state)[0]


def test_too_many_turns_are_an_error_with_the_messages_so_far(backend: FakeBackend):
    call = calling(("add", '{"a": 1, "b": 2}'))
    state = solve(backend, call, call, max_turns=2)
    assert isinstance(state.error(), tr.BudgetExceeded) and "2 turns" in str(state.error())
    assert [m["role"] for m in state.messages()] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("budget", [{"max_turns": 2}, {"max_total_tokens": 4}])
def test_tools_whose_results_no_turn_can_read_are_not_run(backend: FakeBackend, budget: Any):
    ran = []

    def note(n: int) -> int:
        """Note."""
        ran.append(n)
        return n

    calls = (calling(("note", '{"n": 1}')), calling(("note", '{"n": 2}')))  # 2 tokens each
    state = solve(backend, *calls, tools=[note], **budget)
    assert isinstance(state.error(), tr.BudgetExceeded) and ran == [1]


def test_tokens_of_all_turns_are_bounded_together(backend: FakeBackend):
    call = calling(("add", '{"a": 1, "b": 2}'))  # 2 tokens each
    state = solve(backend, call, call, max_total_tokens=4)
    assert isinstance(state.error(), tr.BudgetExceeded) and "4 tokens" in str(state.error())
    assert [r.sampling.max_new_tokens for _, r in backend.asked] == [4, 2]


def test_on_tool_sees_each_call_and_may_answer_it(backend: FakeBackend):
    seen = []

    async def approve(call: tr.ToolCall) -> str | None:
        seen.append(json.loads(call.arguments)["a"])
        return "denied" if seen[-1] == 2 else None

    calls = calling(("add", '{"a": 1, "b": 1}'), ("add", '{"a": 2, "b": 2}'))
    state = solve(backend, calls, "done", on_tool=approve)
    assert sorted(seen) == [1, 2] and results(state) == ["2", "denied"]


def test_a_plain_on_tool_may_block(backend: FakeBackend):
    def approve(call: tr.ToolCall) -> str:
        return tr.function(lambda s: s.append("not now")).run().text()

    state = solve(backend, calling(("add", '{"a": 1, "b": 1}')), "done", on_tool=approve)
    assert state["answer"] == "done" and results(state) == ["not now"]


@dataclass
class Sum:
    value: int
    is_even: bool = False


def test_the_final_answer_may_be_a_dataclass(backend: FakeBackend):
    turns = (calling(("add", '{"a": 1, "b": 2}')), "It is 3.", '{"value": 3}')
    state = solve(backend, *turns, answer=Sum)
    assert state["answer"] == Sum(3)
    last = backend.asked[-1][1]
    assert last.tool_choice == "none" and "is_even" in (last.sampling.json_schema or "")
    assert last.prompt == backend.asked[-2][1].prompt  # the free answer is not in it
    assert [m["content"] for m in state.messages()][-1] == '{"value": 3}'


def test_or_follow_a_schema(backend: FakeBackend):
    state = solve(backend, "3", "[3]", tools=(), answer={"type": "array"})
    assert state["answer"] == [3] and backend.asked[-1][1].tool_choice is None


def test_an_answer_that_is_cut_off_is_an_error(backend: FakeBackend):
    state = solve(backend, "3", '{"val', answer=Sum)
    assert isinstance(state.error(), tr.BrokenAnswer)


def test_events_tell_what_happens_in_order(backend: FakeBackend):
    thinks = calling(("add", '{"a": 1, "b": 2}'))
    thinks = Answer("", "hm", thinks.calls, dict(META))
    state = solve(backend, thinks, "3", stream=True)
    kinds = [type(event).__name__ for event in state.events()]
    assert kinds == [
        "TextEvent", "TextEvent", "TextEvent", "ReasoningEvent", "TurnEvent", "CallEvent",
        "ResultEvent", "TextEvent", "TextEvent", "TurnEvent",
    ]  # fmt: skip


def test_a_cancelled_run_ends_its_tools(backend: FakeBackend):
    began, ended = threading.Event(), []

    async def stuck() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return ""

    state = solve(backend, calling(("stuck", "{}")), tools=[stuck], stream=True)
    assert began.wait(60)
    state.cancel()
    with pytest.raises(tr.Cancelled):
        state["answer"]
    assert ended == [True]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["text", tr.agent("a")], "needs a message to answer"),
        ([tr.assistant_begin(), tr.agent("a")], "end role assistant first"),
    ],
)
def test_an_agent_needs_whole_turns(parts, words, backend: FakeBackend):
    state = tr.function(lambda s: s.append(parts)).run()
    assert isinstance(state.error(), tr.ProgramError) and words in str(state.error())


def test_a_budget_of_no_turns_is_refused():
    with pytest.raises(tr.ProgramError, match="at least 1, got 0"):
        tr.agent("a", max_turns=0)


def cut(text: str, **meta: Any) -> Answer:
    return Answer(text, meta={**META, "finish_reason": {"type": "length"}, **meta})


def test_an_answer_that_the_budget_cuts_off_is_none(backend: FakeBackend):
    state = solve(backend, cut("It is", completion_tokens=4), max_total_tokens=4)
    assert isinstance(state.error(), tr.BudgetExceeded) and "4 tokens" in str(state.error())
    assert state.messages()[-1]["content"] == "It is"
    assert solve(backend, cut("It is"), max_tokens=2, max_total_tokens=9)["answer"] == "It is"


def test_a_budget_of_tokens_needs_a_server_that_counts_them(backend: FakeBackend):
    calls = calling(("add", '{"a": 1, "b": 2}'))
    calls.meta["completion_tokens"] = None
    state = solve(backend, calls, "3", max_total_tokens=9)
    assert isinstance(state.error(), tr.Unsupported) and "fake: max_total" in str(state.error())


def test_an_agent_of_a_run_with_several_outputs_is_refused(backend: FakeBackend):
    parts = [tr.user("1 + 2?"), tr.agent("answer")]
    state = tr.function(lambda s: s.append(parts)).run(n=2)
    assert isinstance(state.error(), tr.ProgramError) and "n=2" in str(state.error())


def test_the_form_of_an_answer_is_checked_before_a_turn_is_paid_for(backend: FakeBackend):
    assert solve(backend, "3", "[3]", tools=(), answer=list[int])["answer"] == [3]
    with pytest.raises(tr.ProgramError, match="has no JSON schema"):
        tr.agent("a", answer=complex)


def test_what_on_tool_says_without_a_text_is_a_failure(backend: FakeBackend):
    call = calling(("add", '{"a": 1, "b": 1}'))
    state = solve(backend, call, "done", on_tool=lambda call: 2**20000)
    assert state["answer"] == "done" and results(state)[0].startswith("error: a int without")


def test_a_dataclass_that_refuses_the_answer_is_told(backend: FakeBackend):
    @dataclass
    class Even:
        value: int

        def __post_init__(self) -> None:
            if self.value % 2:
                raise ValueError("odd")

    state = solve(backend, "3", '{"value": 3}', tools=(), answer=Even)
    assert isinstance(state.error(), tr.ProgramError) and "ValueError: odd" in str(state.error())
