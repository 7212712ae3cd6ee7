"""Model names and paths: what is accepted, what is loaded, and what each refusal says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from test.tiny import Form, tiny_llama
from test.tiny_gguf import write_gguf
from treadle.srt.checkpoint import (
    is_gguf,
    load_model_config,
    load_sampling_defaults,
    resolve_path,
)
from treadle.srt.errors import CheckpointError, ConfigError


def test_folder_and_file_are_paths(tmp_path: Path):
    folder = tiny_llama(tmp_path / "model")
    file = write_gguf(folder, tmp_path / "m.gguf")
    assert resolve_path(str(folder)) == folder
    assert resolve_path(str(file)) == file
    assert (is_gguf(folder), is_gguf(file)) == (False, True)


def test_folder_with_one_gguf_stands_for_it(tmp_path: Path):
    (tmp_path / "a.gguf").touch()
    assert resolve_path(str(tmp_path)) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ConfigError, match=r"no config\.json and 2 \.gguf files"):
        resolve_path(str(tmp_path))


def test_refused_names_say_what_would_do(tmp_path: Path):
    (tmp_path / "model.bin").touch()
    with pytest.raises(ConfigError, match=r"no such folder or file; demo models: demo:v41"):
        resolve_path("meta/llama")
    with pytest.raises(ConfigError, match=r"a folder or a \.gguf file"):
        resolve_path(str(tmp_path / "model.bin"))
    with pytest.raises(ConfigError, match="demo:nothing is unknown"):
        resolve_path("demo:nothing")


def test_override_reaches_both_forms(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    file = write_gguf(folder, tmp_path / "m.gguf")
    assert load_model_config(folder, '{"max_position_embeddings": 77}').context_len == 77
    assert load_model_config(file, '{"llama.context_length": 77}').context_len == 77


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_override_must_be_an_object(tmp_path: Path, text: str):
    with pytest.raises(ConfigError, match="override of the model's config"):
        load_model_config(tiny_llama(tmp_path), text)


def test_override_of_a_gguf_by_a_foreign_name_is_refused(tmp_path: Path):
    file = write_gguf(tiny_llama(tmp_path), tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match=r"override of rope_theta: .*llama\.context_length"):
        load_model_config(file, '{"rope_theta": 1.0}')


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"num_key_value_heads": 3}, "divisible by 3 KV heads, found 4"),
        ({"head_dim": 15}, "even head size, found 15"),
    ],
)
def test_contradictory_sizes_are_refused(tmp_path: Path, override: dict[str, object], message: str):
    with pytest.raises(CheckpointError, match=message):
        load_model_config(tiny_llama(tmp_path), orjson.dumps(override).decode())


def test_end_ids_beyond_the_vocabulary_are_dropped(tmp_path: Path):
    folder = tiny_llama(tmp_path, Form(changes={"vocab_size": 3}))
    assert load_model_config(folder).eos_ids == (2,)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe"])
def test_damaged_config_names_the_file(tmp_path: Path, data: bytes):
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"config\.json: expected"):
        load_model_config(tmp_path)


def test_absent_config_names_the_file(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        load_model_config(tmp_path)


def test_sampling_defaults_of_a_folder(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    assert load_sampling_defaults(folder) == {"temperature": 0.7, "top_k": 50}
    (folder / "generation_config.json").write_text('{"top_p": 1, "min_p": null}')
    assert load_sampling_defaults(folder) == {"top_p": 1.0}
    (folder / "generation_config.json").write_text('{"top_k": "many"}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json: top_k: expected int"):
        load_sampling_defaults(folder)
    (folder / "generation_config.json").unlink()
    assert load_sampling_defaults(folder) == {}


def test_sampling_defaults_of_a_gguf(tmp_path: Path):
    folder = tiny_llama(tmp_path)
    assert load_sampling_defaults(write_gguf(folder, tmp_path / "plain.gguf")) == {}
    extra: dict[str, int | float | str] = {
        "general.sampling.top_k": 64,
        "general.sampling.penalty_repeat": 1.5,
    }
    file = write_gguf(folder, tmp_path / "m.gguf", extra=extra)
    assert load_sampling_defaults(file) == {"top_k": 64, "repetition_penalty": 1.5}


def test_metadata_is_read_without_torch():
    code = "import sys, treadle.srt.checkpoint; assert 'torch' not in sys.modules"
    path = ":".join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})
