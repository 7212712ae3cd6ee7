"""tool_choice required and named: the grammar that reaches the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from test.serving import Bench, FakeEngine, serving
from treadle.srt.api.chat_output import OutputRules
from treadle.srt.api.forced_calls import force_calls
from treadle.srt.api.sampling import Sampling
from treadle.srt.api.schema import Tool
from treadle.srt.api.tool_use import read_tools
from treadle.srt.errors import BadRequest
from treadle.srt.grammar.compile import json_object
from treadle.srt.messages import SamplingParams
from treadle.srt.parse.tools import HERMES
from treadle.srt.token_masks import GrammarKind
from treadle.srt.tokenizer.limits import OutputCap
from treadle.srt.tokenizer.trail import TextRules

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
NUMBER = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": NUMBER}},
    {"type": "function", "function": {"name": "g"}},
]
CALL = b'<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


async def grammar_of(fields: dict[str, Any]) -> str:
    async with serving(FakeEngine(reply=CALL), context_len=2000) as bench:
        body = {"messages": HI, "tools": TOOLS, "max_tokens": 100, **fields}
        choice = (await bench.post(PATH, body)).json()["choices"][0]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"
        grammar = bench.engine.requests[0].sampling.grammar
        if grammar is None:
            return ""
        assert grammar.kind is GrammarKind.LARK
        return grammar.text


async def test_required_allows_every_tool_and_named_one():
    required = await grammar_of({"tool_choice": "required"})
    assert '\\"f\\"' in required
    assert '\\"g\\"' in required
    assert "call)*" in required
    named = await grammar_of({"tool_choice": {"type": "function", "function": {"name": "f"}}})
    assert '\\"g\\"' not in named
    assert "call)*" not in named
    single = await grammar_of({"tool_choice": "required", "parallel_tool_calls": False})
    assert "call)*" not in single


async def test_auto_is_free():
    assert await grammar_of({"tool_choice": "auto"}) == ""


async def test_a_schema_that_is_none_is_refused_before_the_engine_hears_of_it(bench: Bench):
    bad = {"type": "object", "properties": {"x": {"type": "nonsense"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": bad}}]
    body = {"input_ids": [1], "tools": tools, "tool_choice": "required"}
    response = await bench.post(PATH, body)
    assert response.status_code == 400
    assert response.json()["param"] == "tools"
    assert bench.engine.sent == []


async def test_an_answer_has_one_grammar_only(bench: Bench):
    tools = read_tools([msgspec.convert(TOOLS[1], Tool)], "required", is_parallel=None)
    params = SamplingParams(max_new_tokens=9, grammar=json_object())
    cap = OutputCap(9, is_strict=True, param="")
    sampling = Sampling(params, TextRules(), cap, n=1, stream_interval=None)
    with pytest.raises(BadRequest, match="another form") as caught:
        await force_calls(sampling, OutputRules(dialect=HERMES), tools, bench.service)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
async def test_forced_choice_without_tools_is_refused(bench: Bench, choice: Any):
    response = await bench.post(PATH, {"messages": HI, "tool_choice": choice})
    assert response.status_code == 400
    assert response.json()["param"] == "tool_choice"
