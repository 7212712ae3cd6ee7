"""Command line, YAML file and environment: order, kinds of values, errors that name the flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.command_line import parse_command_line
from treadle.flag_parser import CommandLine
from treadle.srt.config import ServerConfig
from treadle.srt.errors import ConfigError


def parse(*argv: str, environ: dict[str, str] | None = None, positional: bool = False):
    return parse_command_line(argv, environ or {}, program="treadle", positional_model=positional)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    return str(path)


def test_no_flags_give_the_defaults():
    assert parse() == CommandLine(ServerConfig(), ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("1M", 1 << 20),
        ("1.5G", 3 << 29),
        ("2GiB", 2 << 30),
        ("-1", -1),
    ],
)
def test_sizes_have_decimal_and_binary_units(text: str, value: int):
    assert parse(f"--context-length={text}").config.model.context_len == value


@pytest.mark.parametrize("text", ["", "k", "8q", "8 k", "1e3", "0x10", "8kk"])
def test_size_that_is_none_is_refused_with_its_flag(text: str):
    with pytest.raises(ConfigError, match="^--max-model-len .*expected a number such as"):
        parse(f"--max-model-len={text}")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--port", "x"], "--port x: expected a number"),
        (["--port", "1.5"], "--port 1.5: expected a number"),
        (["--watchdog-timeout", "soon"], "--watchdog-timeout soon: expected a number"),
        (["--dtype", "int4"], "--dtype int4: must be one of auto, float32"),
        (["--port"], "--port: expected one argument"),
        (["--disable-radix-cache=1"], "--disable-radix-cache"),
        (["--unknown-flag"], "unrecognized arguments: --unknown-flag"),
        (["--disable-radix"], "unrecognized arguments: --disable-radix"),
        (["model"], "unrecognized arguments: model"),
        (
            ["--pipeline-parallel-size", "2"],
            "--pipeline-parallel-size 2: this version does not have",
        ),
    ],
)
def test_error_names_flag_and_value(argv: list[str], words: str):
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert words in caught.value.message


def test_last_of_several_spellings_of_one_field_wins():
    assert parse("--page-size", "8", "--block-size", "32").config.cache.page_size == 32
    config = parse("--no-swa-bounded-replay", "--swa-replay-mode", "exact").config
    assert config.cache.replay_mode == "exact"


def test_model_may_be_positional_under_serve_and_a_flag_wins_over_it():
    assert parse("a", "--port", "1", positional=True).config.model.path == "a"
    assert parse("--port", "1", "a", positional=True).config.model.path == "a"
    assert parse("a", "--model", "b", positional=True).config.model.path == "b"


def test_notice_is_given_once_per_spelling():
    argv = ("--enable-metrics", "--enable-metrics", "--trust-remote-code")
    assert len(parse(*argv).notices) == 2


def test_command_line_wins_over_file_and_file_over_environment(tmp_path: Path):
    file = write(tmp_path, "timeout-keep-alive: 20\npage_size: 8\n")
    environ = {"SGLANG_TIMEOUT_KEEP_ALIVE": "10", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "11"}
    assert parse(environ=environ).config.net.keep_alive_s == 10
    config = parse("--config", file, environ=environ).config
    assert (config.net.keep_alive_s, config.cache.page_size) == (20, 8)
    config = parse("--config", file, "--timeout-keep-alive", "30", environ=environ).config
    assert (config.net.keep_alive_s, config.cache.page_size) == (30, 8)


def test_empty_environment_variable_is_no_value():
    assert parse(environ={"SGLANG_TIMEOUT_KEEP_ALIVE": ""}).config == ServerConfig()


def test_switches_of_a_file_are_booleans(tmp_path: Path):
    text = "disable-radix-cache: true\nswa-bounded-replay: false\nstrict_model_name: false\n"
    line = parse("--config", write(tmp_path, text + "enable-metrics: true\nmodel: /m\n"))
    assert not line.config.cache.prefix_cache
    assert line.config.cache.replay_mode == "off"
    assert line.config.model.path == "/m"
    assert line.notices == ("--enable-metrics has no effect: /metrics is always there",)


def test_empty_file_changes_nothing(tmp_path: Path):
    assert parse("--config", write(tmp_path, "# nothing\n")).config == ServerConfig()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "expected a mapping"),
        ("a: [\n", "--config"),
        ("port: [1, 2]\n", "port: expected one value"),
        ("port: null\n", "port: expected one value"),
        ("port: false\n", "there is no such switch"),
        ("no-such-flag: 1\n", "unrecognized arguments: --no-such-flag=1"),
        ("config: other.yaml\n", "cannot name another file"),
        ("enable-lora: true\n", "--enable-lora: this version does not have adapters"),
        ("page-size: big\n", "--page-size big: expected a number"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(ConfigError) as caught:
        parse("--config", write(tmp_path, text))
    assert words in caught.value.message


def test_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="--config .*No such file"):
        parse("--config", str(tmp_path / "none.yaml"))


def test_other_grammar_compilers_are_replaced_with_a_notice():
    line = parse("--grammar-backend", "xgrammar")
    assert line.config.sched.grammar_backend == "llguidance"
    assert line.notices == ("--grammar-backend xgrammar: llguidance takes its place",)
    assert parse("--grammar-backend", "llguidance").notices == ()
    assert parse("--grammar-backend", "none").config.sched.grammar_backend == "none"
