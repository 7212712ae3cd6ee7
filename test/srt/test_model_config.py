"""ModelConfig: layer kinds are listed bottom first, and every layer is of one kind."""

from __future__ import annotations

from pathlib import Path

from test.tiny import tiny_gemma3, tiny_llama
from treadle.srt.checkpoint import load_model_config


def test_layers_are_split_by_kind(tmp_path: Path):
    config = load_model_config(tiny_gemma3(tmp_path))
    assert config.window_layers == (0, 1, 3, 4, 6)
    assert config.global_layers == (2, 5)


def test_model_without_windows_has_global_layers_only(tmp_path: Path):
    config = load_model_config(tiny_llama(tmp_path))
    assert config.window_layers == ()
    assert config.global_layers == (0, 1, 2)
