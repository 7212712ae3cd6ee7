"""How each kind of server is asked, by the names of `--backend`.

name                     path                    prompts          tells
sglang, sglang-native    /generate               text, ids        ids, cached, replayed, tiers
llama.cpp                /completion             text, ids        ids, cached
sglang-oai, vllm, openai /v1/completions         text, ids        cached, if usage has it
sglang-oai-chat, ...     /v1/chat/completions    messages         cached, if usage has it
sglang-embedding         /v1/embeddings          text, ids        nothing; it has no output
"""

from __future__ import annotations

from .native_wires import LlamaWire, NativeWire
from .openai_wires import ChatWire, CompletionsWire, EmbeddingWire
from .wire import Wire

WIRES: dict[str, Wire] = {
    "sglang": NativeWire(),
    "sglang-native": NativeWire(),
    "llama.cpp": LlamaWire(),
    "sglang-oai": CompletionsWire(has_tiers=True),
    "vllm": CompletionsWire(has_tiers=False),
    "openai": CompletionsWire(has_tiers=False),
    "sglang-oai-chat": ChatWire(has_tiers=True),
    "vllm-chat": ChatWire(has_tiers=False),
    "openai-chat": ChatWire(has_tiers=False),
    "sglang-embedding": EmbeddingWire(),
}
# The chat route of the same server.
CHAT_OF = {
    "sglang": "sglang-oai-chat",
    "sglang-native": "sglang-oai-chat",
    "sglang-oai": "sglang-oai-chat",
    "llama.cpp": "openai-chat",
    "openai": "openai-chat",
    "vllm": "vllm-chat",
}
# Who `/v1/models` says that owns the model -> how to ask; another name: openai.
BY_OWNER = {"sglang": "sglang", "llamacpp": "llama.cpp", "vllm": "vllm"}
