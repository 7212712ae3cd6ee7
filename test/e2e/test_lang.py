"""The language against a real server on DeepSeek-V4.1 weights (C7): shared prefixes, selection,
templates, programs of SGLang's vocabulary. The server is an `Engine`, as a script starts it.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psutil
import pytest

import treadle as tr
from test.e2e.server import ROOT
from treadle.lang.examples import (
    coding_agent,
    extraction,
    few_shot,
    judge,
    react,
    resume,
    self_consistency,
    speculative,
    sub_agents,
    tree_of_thoughts,
)
from treadle.lang.trace import entry_meta

pytestmark = pytest.mark.e2e

PAGE = 16
WINDOW = 128
NOTES = "\n".join(f"- {word}-{i} -> {word[::-1]}{i * 7}" for i, word in enumerate(
    ["castle", "canyon", "clover", "meadow", "shadow", "lunar", "summit", "brook", "mint", "oasis",
     "diamond", "raven", "scarlet", "ivory", "autumn", "thistle", "birch", "tiger", "comet", "fox"]
))  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[tr.Engine]:
    """With drafts, which halve the time of greedy answers and change none."""
    with tr.Engine(
        "demo:v41-mini", kv_cache_memory="64M", num_threads=1, speculative_algorithm="dspark"
    ) as started:
        tr.set_default_backend(started)
        yield started
        tr.set_default_backend(None)


def test_an_engine_is_a_process_that_answers(engine: tr.Engine):
    info = tr.get_server_info()
    assert info["model_path"].endswith("v41-mini")
    found = engine.generate(["def f(x", "def g("], {"max_new_tokens": 2, "temperature": 0})
    assert [len(each["output_ids"]) for each in found] == [2, 2]
    body = {"session_id": ["a", "b"]}
    assert httpx.post(f"{engine.url}/release_session", json=body, timeout=60).json() == {
        "success": True
    }


def test_a_fork_of_32_shares_one_prefix(engine: tr.Engine):
    """C7: every branch takes the prefix from the cache, but for the tokens of its last page."""

    @tr.function
    def forked(s):
        s += NOTES
        with s.fork(32) as forks:
            forks += lambda i: f"\n- loom-{i} ->" + tr.gen("x", max_tokens=1)

    engine.flush_cache()
    state = forked.run(temperature=0)
    metas = state.get_meta_info("x")
    commit = next(entry for entry in state.trace().entries if entry.kind == "commit")
    told = entry_meta(commit)
    prefix = told["prompt_tokens"]
    assert prefix > WINDOW + 4 * PAGE and told["cached_tokens"] == 0
    assert len(metas) == 32
    assert min(meta["cached_tokens"] for meta in metas) >= prefix - 2 * PAGE


def offline(url: str, base: str, choices: list[str]) -> dict[str, int]:
    """The choice of each method, from input log-probabilities asked for by hand."""
    sampling = {"max_new_tokens": 0}
    count = len(httpx.post(f"{url}/tokenize", json={"prompt": base}, timeout=60).json()["tokens"])

    def scores(**body: Any) -> list[list[Any]]:
        body |= {"sampling_params": sampling, "return_logprob": True}
        found = httpx.post(f"{url}/generate", json=body, timeout=60).json()
        return [each["meta_info"]["input_token_logprobs"] for each in found]

    rows = scores(text=[base + choice for choice in choices], logprob_start_len=count)
    alone = scores(input_ids=[[t for _, t, _ in row] for row in rows], logprob_start_len=0)
    means = [sum(p for p, _, _ in row) / len(row) for row in rows]
    gains = [
        sum(p - (q or 0.0) for (p, _, _), (q, _, _) in zip(row, other, strict=True)) / len(row)
        for row, other in zip(rows, alone, strict=True)
    ]
    return {
        "token_length_normalized": means.index(max(means)),
        "greedy_token_selection": greedy(rows),
        "unconditional_likelihood_normalized": gains.index(max(gains)),
    }


def greedy(rows: list[list[Any]]) -> int:
    """By playing it: of the tokens that the choices left offer, the likeliest is taken."""
    left, position = list(range(len(rows))), 0
    while len(left) > 1:
        offered = {}
        for i in left:
            row, mean = rows[i], sum(p for p, _, _ in rows[i]) / len(rows[i])
            ended = position >= len(row)
            offered[i] = (mean, f"end {i}") if ended else (row[position][0], row[position][1])
        best = max(offered.values(), key=lambda pair: pair[0])[1]
        left = [i for i in left if offered[i][1] == best]
        position += 1
    return left[0]


@pytest.mark.parametrize("is_warm", [False, True])
def test_select_is_what_input_logprobs_say(engine: tr.Engine, is_warm: bool):
    """C7, on choices about which the methods differ."""
    base = NOTES + "\n\ndef reverse(text):\n    return"
    choices = [" text[::-1]", " None", " text", " ''.join(reversed(text))", " 0"]
    expected = offline(engine.url, base, choices)
    assert len(set(expected.values())) > 1

    @tr.function
    def chosen(s, method):
        s += base + tr.select("x", choices, choices_method=method)

    for method, index in expected.items():
        if not is_warm:
            engine.flush_cache()
        state = chosen.run(method)
        assert state["x"] == choices[index], method


CALL = {"id": "c1", "type": "function",
        "function": {"name": "calculator", "arguments": '{"expression": "12 * 34"}'}}  # fmt: skip
TURNS: list[dict[str, Any]] = [
    {"role": "assistant", "content": "", "reasoning_content": "I compute.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "408"},
    {"role": "assistant", "content": "12 * 34 = 408", "reasoning_content": "It says 408."},
]
EXPRESSION = {"type": "object", "properties": {"expression": {"type": "string"}},
              "required": ["expression"]}  # fmt: skip
TOOL = {"type": "function", "function": {
    "name": "calculator", "description": "Evaluate an arithmetic expression.",
    "parameters": EXPRESSION}}  # fmt: skip


def test_a_program_and_a_chat_request_have_the_same_ids(engine: tr.Engine):
    """Those that the server has run: a system text, tools with a call and its result, reasoning,
    and an answer that has begun."""

    def calculator(expression: str) -> str:
        """Evaluate an arithmetic expression."""
        return expression

    @tr.function
    def chat(s):
        s += tr.system("You are a helpful assistant.")
        s += tr.user("Please compute 12 * 34.")
        s += tr.history(TURNS)
        s += tr.user("Count the items: bricks, plums")
        s += tr.assistant("There are" + tr.gen("b", tools=[calculator]))

    state = chat.run(temperature=0, max_tokens=1, return_logprob=True, logprob_start_len=0)
    ran = [token for _, token, _ in state.get_meta_info("b")["input_token_logprobs"]]
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Please compute 12 * 34."},
        *TURNS,
        {"role": "user", "content": "Count the items: bricks, plums"},
        {"role": "assistant", "content": "There are"},
    ]
    body = {"messages": messages, "tools": [TOOL], "continue_final_message": True,
            "add_generation_prompt": False, "max_tokens": 1, "return_token_ids": True}  # fmt: skip
    answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["prompt_token_ids"] == ran and len(ran) > 300


def test_a_cancelled_run_ends_on_the_server(engine: tr.Engine):
    @tr.function
    def endless(s):
        s += NOTES + tr.gen("x", max_tokens=2000, ignore_eos=True)

    state = endless.run(stream=True)
    assert next(iter(state.text_iter("x")))
    state.cancel()
    assert isinstance(state.error(), tr.Cancelled)
    while True:  # each look asks the scheduler, which has to end the request
        (load,) = httpx.get(f"{engine.url}/v1/loads", timeout=60).json()["loads"]
        if load["num_running_reqs"] == 0:
            break


# Written from the vocabulary of SGLang's documentation; only their import line is changed.
MULTI_TURN = """
import sglang as sgl

@sgl.function
def multi_turn_question(s, question_1, question_2):
    s += sgl.system("You are a helpful assistant.")
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1", max_tokens=64))
    s += sgl.user(question_2)
    with s.assistant():
        s += sgl.gen("answer_2", max_tokens=64, stop=["\\n"])

sgl.set_default_backend(sgl.RuntimeEndpoint(URL))
state = multi_turn_question.run(
    question_1="Count the items: bricks, plums, onions",
    question_2="Count the items: socks, lemons",
    temperature=0,
)
out = (state["answer_1"], state["answer_2"], [m["role"] for m in state.messages()])
"""
TIPS = """
import sglang as sgl

@sgl.function
def expand(s, name, n_forks):
    s += "def " + name
    forks = s.fork(n_forks)
    for i, f in enumerate(forks):
        f += f"_{i}(" + sgl.gen("args", max_tokens=6, stop=")", temperature=0)
    forks.join()
    with s.var_scope("chosen"):
        s += "_0(" + forks[0]["args"]
    s += "):" + sgl.gen("body", max_tokens=8, regex=r"\\n    return [a-z]+")

backend = sgl.RuntimeEndpoint(URL)
states = expand.run_batch(
    [{"name": "area", "n_forks": 2}, {"name": "size", "n_forks": 3}],
    backend=backend, num_threads=2, progress_bar=True,
)
out = [(len(s["args"]), s["chosen"], s["body"]) for s in states]
"""
TOOL_USE = """
import sglang as sgl

@sgl.function
def tool_use(s, question):
    s += sgl.user_begin() + question + sgl.user_end()
    s += sgl.assistant_begin() + "To answer this I use "
    s += sgl.gen("tool", choices=["a calculator", "a search engine"],
                 choices_method=sgl.greedy_token_selection)
    if s["tool"] == "a calculator":
        s += ". The expression: " + sgl.gen("expression", max_tokens=8, temperature=0)
    else:
        s += ". The key: " + sgl.gen_string("key", max_tokens=8)
    s += sgl.assistant_end()
    return s["tool"]

sgl.set_default_backend(sgl.RuntimeEndpoint(URL))
state = tool_use.run("Please compute 12 * 34.", stream=True)
pieces = list(state.text_iter("tool"))
state.sync()
out = (state.ret_value, pieces, state.get_meta_info("tool")["normalized_prompt_logprobs"])
"""


def run_source(source: str, url: str) -> Any:
    """As a user runs the file after changing its import."""
    names: dict[str, Any] = {"URL": url}
    exec(source.replace("import sglang as sgl", "import treadle as sgl"), names)
    return names["out"]


def test_programs_of_sglang_run_with_another_import(engine: tr.Engine):
    first, second, roles = run_source(MULTI_TURN, engine.url)
    assert (first, second) == ("There are 3 items.", "There are 2 items.")
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    one, two = run_source(TIPS, engine.url)
    assert (one[0], two[0]) == (2, 3) and one[1].startswith("_0(")
    assert two[2].startswith("\n    return ")
    chosen, pieces, means = run_source(TOOL_USE, engine.url)
    assert [chosen] == pieces and len(means) == 2 and chosen.startswith("a ")
    tr.set_default_backend(engine)


EXAMPLES = {
    react: "12 * 34 = 408",
    tree_of_thoughts: ["9a73da50", "9a73da50"],
    self_consistency: ("There are 4 items.", 5),
    extraction: {"shadow": "9b851b", "castle-856": "Nina Zinc"},
    sub_agents: "36 + 40 = 76",
    judge: "b0c10b80",
    coding_agent: (
        ["garden.md", "Copied garden.md to sage.bak."],
        ["list_dir", "read_file", "write_file"],
        {"garden.md": "meadow-458", "plan.txt": "later", "sage.bak": "meadow-458"},
    ),
    speculative: speculative.Outcome("12 * 34 = 408", was_guessed=True, num_cancelled=1),
    resume: (["12 * 34 = 408", "7 * 8 = 56"], ["12 * 34", "7 * 8"], 3),
}


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_finds_what_it_looks_for(engine: tr.Engine, example: Any):
    assert example.main() == EXAMPLES[example]


def test_an_example_is_a_command(engine: tr.Engine, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(sys, "argv", ["judge", engine.url])
    runpy.run_path(judge.__file__, run_name="__main__")
    assert capsys.readouterr().out == "'b0c10b80'\n"
    tr.set_default_backend(engine)


def test_the_program_of_the_readme_runs(
    engine: tr.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    text = (ROOT / "README.md").read_text()
    source = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.S)
        if block.startswith("import treadle")
    )
    assert len(source.strip().splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    shared = source.replace('tr.Engine("demo:v41-mini")', "contextlib.nullcontext(engine)")
    exec(shared, {"engine": engine, "contextlib": contextlib})
    assert capsys.readouterr().out.startswith("12 * 34 = 408 ")
    assert tr.Trace.load(tmp_path / "run.json").totals().num_tool_calls == 1


def test_few_shot_classification_tells_code_from_prose(engine: tr.Engine):
    """Of so small a model: what looks most like either."""
    kinds = {"return self.value": "code", "A small village confirms the letter.": "prose",
             "The council follows the window.": "prose"}  # fmt: skip
    assert few_shot.main(tuple(kinds)) == kinds


def test_nothing_is_left_of_an_engine_that_was_shut_down(engine: tr.Engine):
    """Last in the file: the shared one is ended."""
    own = psutil.Process(os.getpid())
    (server,) = [p for p in own.children() if "engine_child" in " ".join(p.cmdline())]
    family = [server, *server.children(recursive=True)]
    engine.shutdown()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
