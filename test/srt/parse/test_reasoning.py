"""Reasoning and content of each format, under every cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.cutting import check_every_prefix, content, parse
from treadle.srt.parse.events import Event, Reasoning
from treadle.srt.parse.reasoning import FORMATS, ReasoningParser, opened_by

CALLS = "<｜DSML｜ calls>"
ROWS: list[tuple[str, bool | None, str, str, str]] = [
    # format, opened by the prompt, text, reasoning, content
    ("qwen3", None, "<think>\nI think.\n</think>\n\nHello", "I think.", "Hello"),
    ("qwen3", None, "Hello <think> no", "", "Hello <think> no"),
    ("qwen3", None, "<think>\nall of it", "all of it", ""),
    ("qwen3", None, "<thin", "", "<thin"),
    ("qwen3", None, "  \n hello", "", "  \n hello"),
    ("qwen3", None, "\n<think>a</think>b", "a", "b"),
    ("qwen3", None, "<think>\n\n</think>\n\nquick", "", "quick"),
    ("qwen3", True, "I think.\n</think>\n\nHello\n", "I think.", "Hello\n"),
    ("qwen3", False, "<think>not</think>", "", "<think>not</think>"),
    ("qwen3", None, "<think>a\n\nb </thi c</think>x", "a\n\nb </thi c", "x"),
    ("qwen3", None, "<think>a</think>b</think>c", "a", "b</think>c"),
    ("qwen3-thinking", None, "I think.\n</think>\n\nHello", "I think.", "Hello"),
    ("deepseek-r1", None, "I think.</think>Hello", "I think.", "Hello"),
    ("deepseek-r1", None, "<think>\nI think.\n</think>\nHello", "I think.", "Hello"),
    ("deepseek-r1", False, "Hello", "", "Hello"),
    ("deepseek-v3", None, "Hello", "", "Hello"),
    ("deepseek-v3", True, "I think</think>Hello", "I think", "Hello"),
    ("deepseek-v41", True, "\nI think.\n</think>\nHello", "\nI think.\n", "\nHello"),
    ("deepseek-v41", True, f"I think.\n\n{CALLS}x", "I think.", f"\n\n{CALLS}x"),
    ("deepseek-v41", True, f"I think.{CALLS}x", "I think.", f"{CALLS}x"),
    ("deepseek-v41", False, "He</think>llo</thi", "", "Hello</thi"),
    ("deepseek-v4", True, "a\n\n</think>b\n\n<｜DSML｜x>", "a\n\n", "b\n\n<｜DSML｜x>"),
]  # fmt: skip


def reasoning(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


@pytest.mark.parametrize(("name", "is_open", "text", "thought", "said"), ROWS)
def test_recorded_output(name: str, is_open: bool | None, text: str, thought: str, said: str):
    events = parse(lambda: ReasoningParser(FORMATS[name], is_open=is_open), [text])
    assert (reasoning(events), content(events)) == (thought, said)


@pytest.mark.parametrize(("name", "is_open", "text"), [row[:3] for row in ROWS])
def test_every_prefix_of_an_output_streams_to_its_whole(name: str, is_open: bool | None, text: str):
    check_every_prefix(lambda: ReasoningParser(FORMATS[name], is_open=is_open), text)


@given(
    text=st.lists(
        st.sampled_from(["<think>", "</think>", "\n", "<", "</", "th", CALLS, "a", " "])
    ).map("".join),
    name=st.sampled_from(sorted(FORMATS)),
    is_open=st.sampled_from([None, True, False]),
)
def test_no_cut_changes_a_generated_output(text: str, name: str, is_open: bool | None):
    def make() -> ReasoningParser:
        return ReasoningParser(FORMATS[name], is_open=is_open)

    assert parse(make, text) == parse(make, [text])


@pytest.mark.parametrize(
    ("tail", "is_open"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("assistant\n<think>\n\n</think>\n\n", False),
        ("<｜Assistant｜></think>", False),
        ("<|im_start|>assistant\n", None),
    ],
)
def test_the_end_of_the_prompt_says_where_the_text_begins(tail: str, is_open: bool | None):
    assert opened_by(FORMATS["qwen3"], tail) is is_open


def test_is_settled_exactly_when_the_end_tag_is_complete():
    parser = ReasoningParser(FORMATS["qwen3"], is_open=True)
    parser.push("a</think")
    assert (parser.has_reasoned, parser.is_settled) == (True, False)
    parser.push(">")
    assert parser.is_settled
