"""The text that prompts are compared by (rule A10)."""

from __future__ import annotations

from treadle.router.prompt_text import prompt_text

SYSTEM = {"role": "system", "content": "You weave."}


def said(*texts: str) -> list[dict[str, str]]:
    return [SYSTEM, *({"role": "user", "content": text} for text in texts)]


def test_the_next_turn_begins_with_the_one_before():
    tools = [{"name": "t"}]
    first = prompt_text({"messages": said("a"), "tools": tools, "model": "x"})
    second = prompt_text({"messages": said("a", "b"), "tools": tools, "model": "y"})
    assert second.startswith(first) and second != first


def test_more_than_the_first_message_counts():  # A10
    assert prompt_text({"messages": said("a")}) != prompt_text({"messages": said("b")})
    with_tools = prompt_text({"messages": said("a"), "tools": [1]})
    assert with_tools != prompt_text({"messages": said("a")})


def test_other_routes_have_texts_or_ids():
    assert prompt_text({"text": "abc"}) == prompt_text({"prompt": "abc"}) == b"abc"
    assert prompt_text({"input_ids": [1, 2]}) == b"[1,2]"
    assert prompt_text({"system": "s", "messages": []}) == b'"s"'
    assert prompt_text({}) == b""


def test_a_prompt_too_deep_to_be_written_has_no_text():
    deep: object = 0
    for _ in range(300):
        deep = [deep]
    assert prompt_text({"messages": [{"role": "user", "content": deep}]}) == b""
