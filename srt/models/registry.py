"""Architecture name -> model. A new model is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigError
from .decoder import Model, Parameters
from .gemma3 import Gemma3
from .llama import Llama

MODELS: dict[str, Callable[[Parameters], Model]] = {
    "LlamaForCausalLM": Llama.build,
    "Qwen2ForCausalLM": Llama.build,
    "Qwen3ForCausalLM": Llama.build,
    "Gemma3ForCausalLM": Gemma3.build,
}


def build_model(parameters: Parameters) -> Model:
    """Raises `ConfigError` for an architecture that no file here describes."""
    name = parameters.config.architecture
    if name not in MODELS:
        known = ", ".join(sorted(MODELS))
        raise ConfigError(f"architecture {name!r} is not supported; supported: {known}")
    return MODELS[name](parameters)
