"""The flag tables, row by row: documented, unique, and doing what they say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from treadle.command_line import build_parser, parse_command_line
from treadle.flag_parser import CommandLine
from treadle.flags.foreign import FOREIGN
from treadle.flags.row import Flag, Kind, Status
from treadle.flags.table import SECTIONS
from treadle.srt.config import ServerConfig
from treadle.srt.errors import ConfigError

OWN = tuple(flag for _, flags in SECTIONS for flag in flags)
ALL = (*OWN, *FOREIGN)
FIELDS = {
    f"{section.name}.{field.name}"
    for section in dataclasses.fields(ServerConfig)
    for field in dataclasses.fields(getattr(ServerConfig(), section.name))
}
TEXT_OF = {Kind.TEXT: "abc", Kind.INT: "7", Kind.SIZE: "7k", Kind.FLOAT: "0.5"}
VALUE_OF = {Kind.TEXT: "abc", Kind.INT: 7, Kind.SIZE: 7000, Kind.FLOAT: 0.5}


def parse(*argv: str) -> CommandLine[ServerConfig]:
    return parse_command_line(argv, {}, program="treadle")


def field(config: ServerConfig, path: str) -> object:
    section, name = path.split(".")
    return getattr(getattr(config, section), name)


def arguments(flag: Flag, spelling: str) -> list[str]:
    if flag.kind is Kind.SWITCH:
        return [spelling]
    return [spelling, flag.choices[-1] if flag.choices else TEXT_OF[flag.kind]]


def expected(flag: Flag) -> object:
    if flag.kind is Kind.SWITCH:
        return flag.const
    return flag.choices[-1] if flag.choices else VALUE_OF[flag.kind]


@pytest.mark.parametrize("flag", OWN, ids=lambda f: f.spelling)
def test_every_spelling_of_our_flag_sets_its_field_and_nothing_else(flag: Flag):
    for spelling in flag.spellings:
        config = parse(*arguments(flag, spelling)).config
        assert field(config, flag.field) == expected(flag)
        changed = [p for p in FIELDS if field(config, p) != field(ServerConfig(), p)]
        assert set(changed) <= {flag.field}


@pytest.mark.parametrize("flag", [f for f in OWN if f.negation], ids=lambda f: f.spelling)
def test_negation_sets_the_field_the_other_way(flag: Flag):
    config = parse(flag.spelling, flag.negation).config
    assert field(config, flag.field) == flag.negative != flag.const


@pytest.mark.parametrize("flag", [f for f in OWN if f.choices], ids=lambda f: f.spelling)
def test_choices_and_synonyms_are_taken_and_others_named(flag: Flag):
    for text, value in [*((c, c) for c in flag.choices), *flag.synonyms]:
        assert field(parse(flag.spelling, text).config, flag.field) == value
    with pytest.raises(ConfigError, match=f"{flag.spelling} nonsense: must be one of"):
        parse(flag.spelling, "nonsense")


def test_spellings_are_unique():
    spellings = [s for f in ALL for s in (*f.spellings, f.negation) if s]
    assert len(spellings) == len(set(spellings))


def test_every_config_field_has_a_flag_and_every_flag_a_field():
    assert {flag.field for flag in OWN} == FIELDS


@pytest.mark.parametrize("flag", ALL, ids=lambda f: f.spelling)
def test_row_is_documented(flag: Flag):
    assert flag.help
    assert (flag.status is Status.IMPLEMENTED) == (flag in OWN)
    assert flag.status is Status.IMPLEMENTED or flag.why


def test_help_has_a_group_per_section_with_every_spelling():
    text = build_parser("treadle serve", positional_model=True).format_help()
    for title, _ in SECTIONS:
        assert f"\n{title}:\n" in text
    words = set(text.replace(",", " ").split())
    assert {s for f in ALL for s in (*f.spellings, f.negation) if s} <= words


def test_help_tells_plain_defaults_and_leaves_out_those_of_model_or_machine():
    text = " ".join(build_parser("treadle serve", positional_model=True).format_help().split())
    for words in ("--host TEXT bind address; default: 127.0.0.1", "even; default: 16"):
        assert words in text
    assert "default: -1" not in text


# What `surface.md` 1.1-1.6 asks of a first release, by the spelling that recipes use.
P0 = """
--model-path --model --tokenizer-path --tokenizer --load-format --context-length --max-model-len
--dtype --kv-cache-dtype --json-model-override-args --hf-overrides --served-model-name --host --port
--api-key --skip-server-warmup --timeout-keep-alive --chat-template --reasoning-parser
--tool-call-parser --enable-auto-tool-choice --sampling-defaults --generation-config
--stream-interval --enable-cache-report --no-enable-cache-report --mem-fraction-static
--gpu-memory-utilization --max-total-tokens --max-running-requests --max-num-seqs
--max-queued-requests --chunked-prefill-size --max-num-batched-tokens --page-size --block-size
--schedule-policy --scheduling-policy --schedule-conservativeness --disable-overlap-schedule
--disable-radix-cache --no-enable-prefix-caching --radix-eviction-policy --swa-full-tokens-ratio
--disable-hybrid-swa-memory --swa-bounded-replay --no-swa-bounded-replay
--enable-encoder-swa-bounded-replay --enable-decoder-swa-bounded-replay
--no-enable-decoder-swa-bounded-replay --swa-replay-slope --swa-replay-depth --swa-replay-mode
--tp-size --tensor-parallel-size --tp --base-gpu-id --device --attention-backend
--prefill-attention-backend --decode-attention-backend --grammar-backend --random-seed --seed
--disable-cuda-graph --enforce-eager --cuda-graph-max-bs-decode --cuda-graph-max-bs
--watchdog-timeout --log-level --log-level-http --log-requests --log-requests-level
--log-requests-format --decode-log-interval --enable-metrics --strict-model-name --num-threads
--quantization --enable-prompt-tokens-details --enable-force-include-usage -m -c -np --alias -b
--trust-remote-code
"""


@pytest.mark.parametrize("spelling", P0.split())
def test_flag_of_the_first_release_is_known(spelling: str):
    assert any(spelling in (*f.spellings, f.negation) for f in ALL)


def test_command_modules_import_neither_torch_nor_a_web_server(tmp_path: Path):
    import subprocess
    import sys

    root = Path(__file__).parents[3]
    code = "import sys, treadle.launch_server; print({'torch', 'uvicorn'} & set(sys.modules))"
    path = {"PYTHONPATH": str(root / "python")}
    done = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
