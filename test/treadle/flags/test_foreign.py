"""Flags of other servers: told about or refused, one by one."""

from __future__ import annotations

import pytest

from treadle.command_line import parse_command_line
from treadle.flag_parser import CommandLine
from treadle.flags.foreign import FOREIGN
from treadle.flags.row import Flag, Kind, Status
from treadle.srt.config import ServerConfig
from treadle.srt.errors import ConfigError

TEXT_OF = {Kind.TEXT: "abc", Kind.INT: "7", Kind.SIZE: "7k", Kind.FLOAT: "0.5"}


def parse(*argv: str) -> CommandLine[ServerConfig]:
    return parse_command_line(argv, {}, program="treadle")


@pytest.mark.parametrize("flag", FOREIGN, ids=lambda f: f.spelling)
def test_flag_of_another_server_is_never_ignored_in_silence(flag: Flag):
    for spelling in flag.spellings:
        argv = [spelling] if flag.kind is Kind.SWITCH else [spelling, TEXT_OF[flag.kind]]
        if flag.status is Status.REFUSED:
            with pytest.raises(ConfigError) as caught:
                parse(*argv)
            assert caught.value.message.startswith(spelling)
            assert flag.why in caught.value.message
        else:
            line = parse(*argv)
            assert line.config == ServerConfig()
            assert line.notices == (f"{spelling} has no effect: {flag.why}",)


@pytest.mark.parametrize("flag", [f for f in FOREIGN if f.harmless], ids=lambda f: f.spelling)
def test_refused_flag_with_the_value_that_we_have_is_taken(flag: Flag):
    for value in flag.harmless:
        assert parse(flag.spelling, value) == CommandLine(ServerConfig(), ())
