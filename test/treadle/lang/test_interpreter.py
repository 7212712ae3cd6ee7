"""Expressions run: what is asked, what the transcript holds, what variables get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import META, FakeBackend
from treadle.lang.backend import Answer
from treadle.lang.prompt import ChatPrompt, TextPrompt


def program(*parts: Any) -> tr.Program:
    return tr.function(lambda s: s.append(list(parts)))


def test_generated_text_becomes_part_of_the_prompt(backend: FakeBackend):
    state = program("a", tr.gen("x"), "b", tr.gen("y", temperature=0, max_tokens=3)).run(top_p=0.5)
    assert backend.prompts == ["a", "a42b"]
    assert state.text() == "a42b42" and state["x"] == "42"
    sampling = [request.sampling.given() for _, request in backend.asked]
    assert sampling == [
        {"max_new_tokens": 128, "temperature": 1.0, "top_p": 0.5},
        {"max_new_tokens": 3, "temperature": 0, "top_p": 0.5},
    ]


def test_a_chat_is_asked_with_its_messages(backend: FakeBackend):
    state = program(tr.system("S"), tr.user("U"), tr.assistant("I say " + tr.gen("x"))).run()
    ((_, request),) = backend.asked
    assert isinstance(request.prompt, ChatPrompt) and request.prompt.end == "inside"
    assert [m["content"] for m in state.messages()] == ["S", "U", "I say 42"]
    assert state.text() == "system: S\nuser: U\nassistant: I say 42\n"


def test_begin_and_end_are_the_same_as_a_turn(backend: FakeBackend):
    first = program(tr.user("U"), tr.assistant(tr.gen("x"))).run()
    second = program(tr.user_begin(), "U", tr.user_end(), tr.assistant_begin(), tr.gen("x"),
                     tr.assistant_end()).run()  # fmt: skip
    assert first.messages() == second.messages()


def test_variables_of_the_template_travel_with_each_prompt(backend: FakeBackend):
    program(tr.user("U"), tr.assistant(tr.gen("x"))).run(chat_template_kwargs={"thinking": False})
    assert backend.asked[0][1].prompt.variables == {"thinking": False}


def test_several_outputs_are_a_list_and_the_first_goes_on(backend: FakeBackend):
    backend.reply = lambda request: ["one", "two"]
    state = program("a", tr.gen("x", n=2)).run()
    assert state["x"] == ["one", "two"] and state.text() == "aone"
    assert len(state.get_meta_info("x")) == 2


def test_reasoning_has_a_variable_of_its_own(backend: FakeBackend):
    backend.reply = lambda request: Answer("4", "2 and 2", meta=dict(META))
    state = program(tr.user("2 + 2"), tr.assistant(tr.separate_reasoning(tr.gen("x")))).run()
    assert (state["x"], state["x_reasoning_content"]) == ("4", "2 and 2")
    assert state.messages()[-1]["reasoning_content"] == "2 and 2"


def test_so_has_that_of_an_agent(backend: FakeBackend):
    backend.reply = lambda request: Answer("4", "2 and 2", meta=dict(META))
    state = program(tr.user("2 + 2"), tr.separate_reasoning(tr.agent("x"))).run()
    assert (state["x"], state["x_reasoning_content"]) == ("4", "2 and 2")


def test_a_variable_that_nothing_has_set_is_an_error_and_no_wait(backend: FakeBackend):
    @dataclass(frozen=True, slots=True)
    class Silent(tr.Expr):
        def names(self):
            yield "x"

    state = program(tr.separate_reasoning(Silent())).run()
    with pytest.raises(tr.ProgramError):
        state["x"]


def test_reasoning_of_a_text_is_split_by_the_backend_and_stays_in_the_text(backend: FakeBackend):
    backend.reply = lambda request: "so</think>4"
    state = program("2 + 2", tr.separate_reasoning(tr.gen("x"), "qwen3")).run()
    assert (state["x"], state["x_reasoning_content"]) == ("4", "so")
    assert state.text() == "2 + 2so</think>4"


def test_select_goes_on_with_the_choice(backend: FakeBackend):
    backend.logprobs = lambda prompt: [-1.0] if prompt.endswith("no") else [-2.0]
    state = program("Is it? ", tr.select("x", ["yes", "no"]), "!").run()
    assert state["x"] == "no" and state.text() == "Is it? no!"
    (request,) = backend.scored
    assert request.bases == (TextPrompt("Is it? "),)
    assert [p.text for p in request.prompts] == ["Is it? yes", "Is it? no"]
    assert state.get_meta_info("x")["normalized_prompt_logprobs"] == [-2.0, -1.0]


def test_select_at_the_begin_of_an_answer_finds_its_base_by_two_probes(backend: FakeBackend):
    program(tr.user("U"), tr.assistant(tr.select("x", ["a", "b"]))).run()
    program(tr.user("U"), tr.assistant("I: " + tr.gen("x", choices=["a", "b"]))).run()
    first, second = backend.scored
    assert [base.messages[-1]["content"] for base in first.bases] == ["0", "A"]
    assert [base.messages[-1]["content"] for base in second.bases] == ["I: "]
    assert second.prompts[1].messages[-1]["content"] == "I: b"


def test_var_scope_holds_the_text_between(backend: FakeBackend):
    @tr.function
    def scoped(s):
        s += "a"
        with s.var_scope("all"):
            s += "b" + tr.gen("x")
        s += "c"

    assert scoped.run()["all"] == "b42"


def test_calls_of_a_generation_are_answered_by_hand(backend: FakeBackend):
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tr.function
    def by_hand(s):
        s += tr.user("1 + 2?") + tr.assistant(tr.gen("x", tools=[add], tool_choice="required"))
        (call,) = s.tool_calls("x")
        s += tr.tool_result(call, 3)
        s += tr.assistant(tr.gen("y"))

    def reply(request: Any) -> Any:
        call = tr.ToolCall("c1", "add", '{"a": 1, "b": 2}')
        return Answer("", calls=(call,), meta=dict(META)) if request.prompt.tools else "3"

    backend.reply = reply
    state = by_hand.run()
    assert state["y"] == "3"
    assert backend.asked[0][1].tool_choice == "required"
    roles = [message["role"] for message in state.messages()]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert state.messages()[1]["tool_calls"][0]["id"] == state.messages()[2]["tool_call_id"]


def test_a_conversation_may_be_taken_over(backend: FakeBackend):
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    state = program(tr.history(said), tr.user("And?"), tr.assistant(tr.gen("x"))).run()
    assert state.messages()[:2] == said and len(backend.asked[0][1].prompt.messages) == 3
    state = program(tr.user_begin(), tr.history(said)).run()
    assert "cannot stand inside of role user" in str(state.error())


def test_tools_in_a_text_are_refused(backend: FakeBackend):
    state = program("a", tr.gen("x", tools=[])).run()
    assert state.error() is None  # none are no tools
    state = program("a", tr.gen("x", tools=[tr.Tool("t", "", {}, lambda: 1)])).run()
    assert "tools need a chat" in str(state.error())


def test_logprobs_may_be_asked_of_one_generation_or_of_all(backend: FakeBackend):
    program("a", tr.gen("x", return_logprob=True, top_logprobs_num=3), tr.gen("y")).run()
    program("a", tr.gen("x")).run(return_logprob=True, logprob_start_len=0)
    wanted = [request.logprobs for _, request in backend.asked]
    assert (wanted[0].top, wanted[0].start, wanted[1]) == (3, -1, None)
    assert wanted[2].start == 0


@pytest.mark.parametrize("part", [1, None, {"a": 1}])
def test_what_is_no_expression_is_a_type_error(part, backend: FakeBackend):
    with pytest.raises(TypeError, match="appends strings and expressions"):
        program(part).run()
