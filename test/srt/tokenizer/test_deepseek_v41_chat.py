"""DeepSeek-V4.1 prompts: fixed texts, against the official encoder, and no injection of markers."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path

import pytest

from treadle.srt.errors import BadRequest
from treadle.srt.tokenizer.conversation import Conversation
from treadle.srt.tokenizer.deepseek_v41_chat import EFFORTS, MARKERS, PromptOptions, render
from treadle.srt.tokenizer.deepseek_v41_format import DeepseekV41Format
from treadle.srt.tokenizer.deepseek_v41_texts import EFFORT, FORMAT_HEAD, TOOLS_HEAD, TOOLS_TAIL
from treadle.srt.tokenizer.encode import Tokenizer

TEST = Path(__file__).parents[2]
WORDS = ["hello", "", "x\n\ny", "<think>", "日本 ok", 'a "b"', "<｜User｜>", "<｜DSML｜ calls>"]
TOOL = {
    "name": "f",
    "description": "d é",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(TEST / "checkpoints/v41-mini")


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (EFFORT.format(75), "86fdea28dfcf6ee1cffe3c13c63f9472d1c250d444d06666b710530963194231"),
        (TOOLS_HEAD, "2ae2ff83edf990187ed419c4e2901bb9ea6ce2129eb503ac543b258e7de8231d"),
        (TOOLS_TAIL, "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7"),
        (FORMAT_HEAD, "5200f58413f49f3957c43beddbc97bead023232cb5934fad0c1997c30c139112"),
    ],
    ids=["effort", "tools head", "tools tail", "format head"],
)
def test_fixed_texts_have_the_published_digests(text, digest):
    assert hashlib.sha256(text.encode()).hexdigest() == digest


def some_calls(rng: random.Random) -> list[dict]:
    arguments = [{}, {"a": "x y"}, {"n": 3, "l": [1, "é"], "s": 'q"'}]
    return [
        {"id": f"c{i}", "function": {"name": f"f{i}", "arguments": rng.choice(arguments)}}
        for i in range(rng.choice([0, 0, 1, 2]))
    ]


def some_messages(rng: random.Random) -> list[dict]:
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": rng.choice(WORDS)})
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.choice([1, 1, 1, 2])):
            messages.append({"role": "user", "content": rng.choice(WORDS)})
        if rng.random() < 0.1:
            messages.append({"role": "system", "content": rng.choice(WORDS)})
        if rng.random() < 0.75:
            messages.extend(some_turn(rng))
    return messages


def some_turn(rng: random.Random) -> list[dict]:
    turn: dict[str, object] = {"role": "assistant", "content": rng.choice(WORDS)}
    if rng.random() < 0.7:
        turn["reasoning_content"] = rng.choice(WORDS)
    calls = some_calls(rng)
    if not calls:
        return [turn]
    turn["tool_calls"] = calls
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": rng.choice(WORDS)} for call in calls
    ]
    rng.shuffle(results)
    return [turn, *results]


def official(module, messages: list[dict], options: PromptOptions) -> str:
    made = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "system":
            made.append(module.SystemMessage(content))
        elif role == "user":
            made.append(module.UserMessage(content))
        elif role == "tool":
            made.append(module.ToolMessage(content, message["tool_call_id"]))
        else:
            calls = [
                module.ToolCall(
                    call["id"],
                    call["function"]["name"],
                    json.dumps(call["function"]["arguments"], ensure_ascii=False),
                )
                for call in message.get("tool_calls", [])
            ]
            is_last = message is messages[-1]
            made.append(
                module.AssistantMessage(
                    content,
                    message.get("reasoning_content"),
                    calls or None,
                    prefix=options.continues and is_last,
                )
            )
    tools = [
        module.ToolDefinition(x["name"], x["description"], x["parameters"]) for x in options.tools
    ]
    extra = {} if options.schema is None else {"response_schema": options.schema}
    conversation = module.Conversation(
        messages=made, thinking_mode=options.is_thinking, tools=tools or None, **extra
    )
    return module.DeepseekV41Encoding().render_conversation(conversation).prompt


def test_prompts_equal_those_of_the_official_encoder():
    module = pytest.importorskip("deepseek_recipe")
    rng = random.Random(1)
    for _ in range(600):
        messages = some_messages(rng)
        options = PromptOptions(
            is_thinking=rng.random() < 0.5,
            tools=[TOOL] * rng.choice([0, 1, 2]),
            schema=rng.choice([None, None, {"type": "object"}]),
            continues=messages[-1]["role"] == "assistant" and rng.random() < 0.5,
        )
        text = "".join(piece.text for piece in render(messages, options))
        assert text == official(module, messages, options), messages


def test_agent_cases_have_their_length(tokenizer):
    for line in (TEST / "evals/agent_tasks.jsonl").read_text().splitlines():
        case = json.loads(line)
        conversation = Conversation(
            case["messages"],
            0,
            extra={"thinking": case["thinking"], "reasoning_effort": case["reasoning_effort"]},
            tools=case["tools"],
        )
        ids = DeepseekV41Format().encode(conversation, tokenizer)
        assert len(ids) == case["prompt_tokens"], case["id"]


def test_parts_of_a_message_are_joined_by_an_empty_line(tokenizer):
    parts = [{"type": "text", "text": text} for text in "ab"]
    found, expected = (
        DeepseekV41Format().encode(Conversation([{"role": "user", "content": c}], 0), tokenizer)
        for c in (parts, "a\n\nb")
    )
    assert found == expected


@pytest.mark.parametrize("marker", MARKERS)
def test_what_a_user_writes_never_becomes_a_marker(tokenizer, marker):
    messages = [{"role": "user", "content": f"a{marker}b"}]
    ids = DeepseekV41Format().encode(Conversation(messages, 0), tokenizer)
    plain = DeepseekV41Format().encode(
        Conversation([{"role": "user", "content": "ab"}], 0), tokenizer
    )
    marker_id = tokenizer.id_of(marker)
    assert ids.count(marker_id) == plain.count(marker_id)
    assert marker in tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, "75"),
        ({"reasoning_effort": "max"}, "100"),
        ({"reasoning_effort": 12}, "12"),
        ({"reasoning_effort": 0.5}, "50"),
        ({"reasoning_effort": "none"}, None),
        ({"thinking": False}, None),
        ({"enable_thinking": False}, None),
    ],
)
def test_thinking_and_effort_come_from_the_requests_variables(tokenizer, variables, shown):
    conversation = Conversation([{"role": "user", "content": "hi"}], 0, extra=variables)
    text = tokenizer.decode(DeepseekV41Format().encode(conversation, tokenizer), skip_special=False)
    assert text.endswith("</think>" if shown is None else "<think>")
    assert (EFFORT.format(shown) in text) if shown else ("Effort" not in text)


@pytest.mark.parametrize("effort", ["much", 0, 101, True])
def test_an_effort_out_of_range_is_refused_with_its_value(tokenizer, effort):
    conversation = Conversation(
        [{"role": "user", "content": "hi"}], 0, extra={"reasoning_effort": effort}
    )
    with pytest.raises(BadRequest, match=f"{', '.join(EFFORTS)} or 1 to 100, got {effort!r}"):
        DeepseekV41Format().encode(conversation, tokenizer)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "at least one message"),
        ([{"role": "narrator", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
    ],
)
def test_bad_messages_are_refused_by_name(tokenizer, messages, says):
    with pytest.raises(BadRequest, match=re.escape(says)):
        DeepseekV41Format().encode(Conversation(messages, 0), tokenizer)
