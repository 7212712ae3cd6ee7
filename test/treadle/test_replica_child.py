"""The child that serves one of several replicas."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import orjson
import pytest

from treadle import replica_child
from treadle.srt.config import ModelSection, NetSection, ServerConfig


def test_its_configuration_comes_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], restore_logging: None
):
    net = NetSection(log_level="error")
    config = replace(ServerConfig(), model=ModelSection(path="no-such-model"), net=net)
    data = io.BytesIO(orjson.dumps(asdict(config)))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    assert replica_child.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "no-such-model" in line
