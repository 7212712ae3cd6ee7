"""What templates see, and what a client is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.srt.errors import BadRequest, CheckpointError, ConfigError
from treadle.srt.tokenizer.chat import ChatTemplate, pick_template
from treadle.srt.tokenizer.encode import Tokenizer

from .conftest import GgufWriter

ECHO = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
HI: list[dict[str, object]] = [{"role": "user", "content": "hi"}]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, name="test", tokens={"bos_token": "<s>"})


def render(
    source: str, messages: list[dict[str, object]], extra: dict[str, object] | None = None
) -> str:
    return template(source).render(
        messages, add_generation_prompt=False, continue_final_message=False, extra=extra
    )


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_parts_are_joined_for_a_template_of_strings():
    assert render(ECHO, [{"role": "user", "content": parts("a", "b")}]) == "[user: a\nb]"


def test_template_of_parts_gets_parts():
    source = (
        "{% for m in messages %}{% for p in m.content %}<{{ p['text'] }}>{% endfor %}{% endfor %}"
    )
    assert render(source, [{"role": "user", "content": "a"}]) == "<a>"
    assert render(source, [{"role": "user", "content": parts("a", "b")}]) == "<a\nb>"


def test_absent_content_is_empty_text():
    assert render(ECHO, [{"role": "assistant", "content": None}, {"role": "user"}]) == (
        "[assistant: ][user: ]"
    )


def test_developer_is_system_unless_the_template_knows_it():
    message: list[dict[str, object]] = [{"role": "developer", "content": "x"}]
    assert render(ECHO, message) == "[system: x]"
    assert render(ECHO + "{# developer #}", message) == "[developer: x]"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "x"}, r"messages\[0\]\.role must be a string"),
        ({"role": "user", "content": 3}, r"messages\[0\]\.content must be"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            r"messages\[0\]\.content\[0\]: .* found type image_url",
        ),
        ({"role": "user", "content": ["x"]}, r"messages\[0\]\.content\[0\]"),
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[0\]\.content\[0\]"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, r"tool_calls\[0\]\.function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]},
            r"tool_calls\[0\]\.function\.arguments must be JSON",
        ),
    ],
)
def test_wrong_message_is_named(message: dict[str, object], words: str):
    with pytest.raises(BadRequest, match=words) as caught:
        render(ECHO, [message])
    assert str(caught.value.param).startswith("messages[0].")


def test_empty_messages_are_refused():
    with pytest.raises(BadRequest, match="messages is empty"):
        render(ECHO, [])


def test_arguments_of_tool_calls_are_decoded():
    calls = [{"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}}]
    source = "{{ messages[0].tool_calls[0].function.arguments.x + 1 }}"
    message: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": calls}
    assert render(source, [message]) == "2"
    assert calls[0]["function"] == {"name": "f", "arguments": '{"x": 1}'}  # left as it was


def test_refusal_of_the_template_is_the_clients_error():
    with pytest.raises(BadRequest, match="chat template: not like this"):
        render("{{ raise_exception('not like this') }}", HI)


@pytest.mark.parametrize(
    "source",
    [
        "{{ a.b.c }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages[0].content.x.y }}",
        "{{ {} | int | sum }}",
        "{{ {[]: 1} }}",
        "{% include 'x' %}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    ],
)
def test_any_failure_of_a_template_is_a_bad_request(source: str):
    with pytest.raises(BadRequest, match="the chat template failed"):
        render(source, HI)


def test_tojson_escapes_nothing_for_html():
    assert render("{{ x | tojson }}", HI, {"x": {"b": "<é'>", "a": 1}}) == '{"b": "<é\'>", "a": 1}'
    assert render("{{ x | tojson(indent=1, sort_keys=true) }}", HI, {"x": {"b": 1, "a": 2}}) == (
        '{\n "a": 2,\n "b": 1\n}'
    )
    assert (
        render("{{ x | tojson(separators=(',', ':')) }}", HI, {"x": {"b": [1, 2]}}) == '{"b":[1,2]}'
    )


def test_date_function_and_loop_controls_are_there():
    year = render("{{ strftime_now('%Y') }}", HI)
    assert len(year) == 4
    assert year.isdigit()
    assert (
        render(
            "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", HI
        )
        == "01"
    )


def test_blocks_leave_no_white_space():
    assert (
        render("{% if true %}\n    {% if true %}\nx\n    {% endif %}\n{% endif %}\n", HI) == "x\n"
    )


def test_request_variables_are_seen_but_replace_none_of_ours():
    assert render("{{ enable_thinking }}", HI, {"enable_thinking": True}) == "True"
    source = "{{ messages | length }}{{ bos_token }}{{ add_generation_prompt }}{{ tools }}"
    theirs = {"messages": [], "bos_token": "x", "add_generation_prompt": 1, "tools": [1]}
    assert render(source, HI, theirs) == "1<s>FalseNone"


def continued(source: str, content: object) -> str:
    return template(source).render(
        [*HI, {"role": "assistant", "content": content}],
        add_generation_prompt=True,
        continue_final_message=True,
    )


def test_continued_message_stays_open():
    source = ECHO + "{% if add_generation_prompt %}go{% endif %}"
    assert continued(source, "so ") == "[user: hi][assistant: so "
    assert continued(source, parts("so", "far")) == "[user: hi][assistant: so\nfar"
    assert continued(ECHO.replace("m.content", "m.content | trim"), " so ") == (
        "[user: hi][assistant: so "
    )


def test_continuing_needs_a_last_assistant_message_that_is_shown():
    with pytest.raises(BadRequest, match="found one of the user"):
        template(ECHO).render(HI, add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(BadRequest, match="does not show the final message"):
        continued("nothing", "so")


def test_flag_is_a_name_a_file_or_a_text(tiny: Tokenizer, tmp_path: Path):
    file = tmp_path / "a.jinja"
    file.write_text(ECHO)
    for flag, expected in (
        ("", "<bos>from the config"),
        ("chatml", "<bos><|im_start|>user\nhi<|im_end|>\n"),
        (str(file), "[user: hi]"),
        ("{{ eos_token }}", "<eos>"),
    ):
        picked = pick_template(tiny, flag)
        assert picked is not None
        assert expected == picked.render(
            HI, add_generation_prompt=False, continue_final_message=False
        )


def test_unusable_flag_is_a_config_error(tiny: Tokenizer):
    with pytest.raises(ConfigError, match="--chat-template nosuch: expected one of chatml, gemma"):
        pick_template(tiny, "nosuch")
    with pytest.raises(ConfigError, match="chat template of --chat-template, line 1"):
        pick_template(tiny, "{% if %}")


def test_model_without_template_has_none_or_that_of_its_kind(
    sentencepiece_file: GgufWriter, gemma: Tokenizer
):
    assert pick_template(Tokenizer.load(sentencepiece_file({})), "") is None
    picked = pick_template(gemma, "")
    assert picked is not None
    assert picked.name == "gemma"
    text = picked.render(HI, add_generation_prompt=True, continue_final_message=False)
    assert text == "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"
    ids = gemma.encode(text, add_special=False)
    assert ids[:2] == [2, 105]
    assert ids.count(2) == 1


def test_bos_is_left_out_for_a_model_that_adds_none(smollm: Tokenizer):
    picked = pick_template(smollm, "chatml")
    assert picked is not None
    assert picked.render(HI, add_generation_prompt=True, continue_final_message=False) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_broken_template_of_a_model_says_how_to_replace_it(tiny_folder: Path, tmp_path: Path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(CheckpointError, match="--chat-template replaces it"):
        pick_template(Tokenizer.load(tmp_path), "")
