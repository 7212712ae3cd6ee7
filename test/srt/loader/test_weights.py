"""The door to weights: one parameter at a time, from the format asked for, with progress."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch

from test.tiny import tiny_gemma3, tiny_llama
from test.tiny_gguf import write_gguf
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError, ConfigError
from treadle.srt.loader.names import parameter_shapes
from treadle.srt.loader.weights import iter_weights


def ignore(done: int, total: int, parameter: str) -> None:
    """A consumer that shows no progress."""


@pytest.mark.parametrize("load_format", ["auto", "safetensors", "gguf", "dummy"])
def test_every_source_gives_all_parameters_in_order(tmp_path: Path, load_format: str):
    folder = tiny_llama(tmp_path)
    path = write_gguf(folder, tmp_path / "m.gguf") if load_format == "gguf" else folder
    config = load_model_config(path)
    shapes = {p: tuple(w.shape) for p, w in iter_weights(path, config, load_format, ignore)}
    assert list(shapes.items()) == list(parameter_shapes(config).items())


def test_dummy_needs_no_weight_files(tmp_path: Path):
    folder = tiny_gemma3(tmp_path)
    (folder / "model.safetensors").unlink()
    weights = dict(iter_weights(folder, load_model_config(folder), "dummy", ignore))
    assert torch.equal(weights["layers.0.attn_norm"], torch.ones(64))


def test_progress_ends_at_the_total(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    seen: list[tuple[int, int, str]] = []
    weights = iter_weights(
        folder, load_model_config(folder), "auto", lambda *step: seen.append(step)
    )
    assert seen == []  # nothing is loaded before it is asked for
    parameters = [p for p, _ in weights]
    assert [p for _, _, p in seen] == parameters
    done = [x for x, _, _ in seen]
    assert done == sorted(set(done))
    assert done[-1] == seen[-1][1]


def test_nothing_is_held_once_the_consumer_moved_on(tmp_path: Path):
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "m.gguf")
    weights = iter_weights(path, load_model_config(path), "gguf", ignore)
    _, tensor = next(weights)
    first = weakref.ref(tensor)
    _, tensor = next(weights)
    assert first() is None


@pytest.mark.parametrize("load_format", ["gguf", "npcache"])
def test_format_that_the_path_has_not_is_refused(tmp_path: Path, load_format: str):
    folder = tiny_llama(tmp_path)
    with pytest.raises(ConfigError, match=f"'{load_format}' .* auto, safetensors or dummy"):
        iter_weights(folder, load_model_config(folder), load_format, ignore)


def test_checkpoint_is_checked_before_the_first_parameter(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    config = load_model_config(folder)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError):
        iter_weights(folder, config, "auto", ignore)
