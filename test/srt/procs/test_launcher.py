"""What the launcher says about the config, and what it refuses before anything starts."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.srt.config import ServerConfig
from treadle.srt.errors import CheckpointError, ConfigError
from treadle.srt.procs import launcher
from treadle.srt.procs.launcher import launch, log_config
from treadle.srt.procs.replica import Programs


@pytest.fixture(autouse=True)
def keep_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "setup_logging", lambda level, process: None)


def with_model(path: Path) -> ServerConfig:
    config = ServerConfig()
    return replace(config, model=replace(config.model, path=str(path)))


def test_every_value_is_printed_once_and_no_secret(caplog: pytest.LogCaptureFixture):
    config = ServerConfig()
    config = replace(config, net=replace(config.net, api_key="hush"))
    config = replace(config, api=replace(config.api, admin_api_key="hush"))
    with caplog.at_level(logging.INFO):
        log_config(config)
    assert len(caplog.records) == 6
    assert "page_size=16" in caplog.text and "watchdog_s=300" in caplog.text
    assert "admin_api_key=***" in caplog.text and " api_key=***" in caplog.text
    assert "hush" not in caplog.text


def test_model_that_is_not_there_is_a_config_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="none"):
        launch(with_model(tmp_path / "none"), Programs())


def test_damaged_checkpoint_is_refused_before_anything_starts(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="config.json"):
        launch(with_model(tmp_path), Programs("no_such", "no_such", "no_such"))
