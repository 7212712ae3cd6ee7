"""What a table of flags may hold; reading them is tested with the tables of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.flag_parser import CommandLine
from treadle.launch_router import parse_router_flags
from treadle.router.config import RouterConfig
from treadle.srt.errors import ConfigError


def test_no_flags_give_the_defaults():
    assert parse_router_flags([]) == CommandLine(RouterConfig(), ())


def test_lists_may_stand_in_a_file(tmp_path: Path):
    path = tmp_path / "router.yaml"
    path.write_text("worker-urls: [http://a:1, http://b:1]\nport: 5\ndisable-retries: true\n")
    config = parse_router_flags(["--config", str(path), "--port", "6"]).config
    assert config.workers.urls == "http://a:1 http://b:1"
    assert config.net.port == 6 and not config.retry.is_on


@pytest.mark.parametrize("text", ["worker-urls: [1]", "worker-urls: []", "port: [1]"])
def test_other_lists_are_refused(tmp_path: Path, text: str):
    path = tmp_path / "router.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="expected one value"):
        parse_router_flags(["--config", str(path)])
