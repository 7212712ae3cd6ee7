"""Model name -> path; path -> ModelConfig and sampling defaults; no torch.

A checkpoint is a folder in Hugging Face form (`config.json` beside `*.safetensors`) or one GGUF
file. Weights are not touched here; `loader/weights.py` reads them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from .demo import DEMOS, IN_CHECKOUT, PREFIX, demo_path
from .errors import CheckpointError, ConfigError
from .gguf import GgufFile
from .gguf_config import SAMPLING_KEYS, model_config_from_gguf
from .hf_config import model_config_from_hf
from .json_object import JsonObject
from .model_config import ModelConfig

SAMPLING_KINDS: dict[str, type[int] | type[float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
}


def is_gguf(path: Path) -> bool:
    """Whether a resolved path is read as GGUF (a file) rather than as a folder."""
    return path.is_file()


def resolve_path(name: str) -> Path:
    """A folder with `config.json`, or a `.gguf` file, for what the user called the model.

    A folder that holds one `.gguf` file and no `config.json` stands for that file.
    Raises: ConfigError when there is no such thing, naming what would be accepted.
    """
    if name.startswith(PREFIX):
        return demo_path(name.removeprefix(PREFIX))
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ConfigError(
                f"model {name}: expected a folder or a .gguf file, found another file"
            )
        return path
    if path.is_dir():
        return _in_folder(path)
    demos = ", ".join(PREFIX + x for x in (*IN_CHECKOUT, *DEMOS))
    raise ConfigError(f"model {name}: no such folder or file; demo models: {demos}")


def _in_folder(path: Path) -> Path:
    if (path / "config.json").is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    raise ConfigError(
        f"model {path}: expected a folder with config.json or one .gguf file, found no config.json"
        f" and {len(files)} .gguf files"
    )


def load_model_config(path: Path, override_json: str = "{}") -> ModelConfig:
    """The structure of the checkpoint at a path of `resolve_path`.

    `override_json` is an object whose keys replace those of `config.json` (of its `text_config`,
    where there is one) or of the GGUF metadata (full names such as `llama.context_length`).
    Raises: ConfigError for an architecture or feature that is not supported and for a bad override;
    CheckpointError for a damaged or contradictory file.
    """
    override = _override(override_json)
    if is_gguf(path):
        file = GgufFile.open(path)
        if odd := [key for key in override if "." not in key]:
            raise ConfigError(
                f"override of {odd[0]}: a GGUF file's keys have dots, such as llama.context_length"
            )
        file = replace(file, metadata={**file.metadata, **override})
        return _checked(model_config_from_gguf(file), path)
    config = _json(path / "config.json")
    generation = _json(path / "generation_config.json", is_optional=True)
    return _checked(model_config_from_hf(config, generation, override), path)


def load_sampling_defaults(path: Path) -> dict[str, float | int]:
    """Sampling values that the checkpoint recommends, by our names; empty when it has none."""
    if is_gguf(path):
        metadata = GgufFile.open(path).metadata
        found = {ours: metadata[key] for key, ours in SAMPLING_KEYS.items() if key in metadata}
        source = JsonObject(str(path), found)
    else:
        source = _json(path / "generation_config.json", is_optional=True)
    defaults: dict[str, float | int] = {}
    for key, kind in SAMPLING_KINDS.items():
        if source.values.get(key) is not None:
            defaults[key] = source.value(key, kind)
    return defaults


def _override(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"override of the model's config: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"override of the model's config: expected an object, found {text[:80]}")
    return found


def _json(path: Path, *, is_optional: bool = False) -> JsonObject:
    if is_optional and not path.exists():
        return JsonObject(str(path), {})
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path}: expected JSON: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: expected an object, found {type(found).__name__}")
    return JsonObject(str(path), found)


def _checked(config: ModelConfig, path: Path) -> ModelConfig:
    """Facts that every later part divides by or indexes with.

    An end id beyond the vocabulary cannot be sampled, and masking it would index out of range, so
    it is dropped.
    """
    if config.num_heads % config.num_kv_heads:
        raise CheckpointError(
            f"{path}: expected a number of heads divisible by {config.num_kv_heads} KV heads,"
            f" found {config.num_heads}"
        )
    if config.head_dim % 2:
        raise CheckpointError(f"{path}: expected an even head size, found {config.head_dim}")
    if config.window_layers and config.window < 1:
        raise CheckpointError(f"{path}: expected a window of at least 1, found {config.window}")
    eos_ids = tuple(x for x in config.eos_ids if 0 <= x < config.vocab_size)
    return replace(config, eos_ids=eos_ids)
