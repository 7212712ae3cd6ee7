"""Flags of the model and its tokenizer."""

from __future__ import annotations

from .row import DTYPES, SIZE, Flag

MODEL = (
    Flag(
        "--model-path",
        "model.path",
        "folder, GGUF file, or demo:v41-mini, demo:smollm2-135m, demo:gemma3-270m",
        aliases=("--model", "-m"),
    ),
    Flag(
        "--tokenizer-path",
        "model.tokenizer_path",
        "folder or GGUF file of the tokenizer; default: the model's",
        aliases=("--tokenizer",),
    ),
    Flag(
        "--served-model-name",
        "model.served_name",
        "name in /v1/models and in responses; default: the model path",
        aliases=("--alias",),
    ),
    Flag(
        "--load-format",
        "model.load_format",
        "form of the weights; dummy: random weights",
        choices=("auto", "safetensors", "gguf", "dummy"),
    ),
    Flag(
        "--dtype",
        "model.dtype",
        "arithmetic of unquantised layers",
        choices=("auto", "float32", "bfloat16", "float16"),
        synonyms=DTYPES,
    ),
    Flag(
        "--quantization",
        "model.quantization",
        "of weights in memory; auto: q8_0 (int8 in groups of 32) for quantised GGUF files",
        aliases=("-q",),
        choices=("auto", "none", "q8_0"),
    ),
    Flag(
        "--context-length",
        "model.context_len",
        "longest prompt and output together, tokens; default and limit: the model's",
        SIZE,
        ("--max-model-len", "-c"),
    ),
    Flag(
        "--json-model-override-args",
        "model.override_args",
        "JSON merged into the model's config",
        aliases=("--hf-overrides",),
    ),
    Flag(
        "--chat-template",
        "model.chat_template",
        "built-in name, jinja file or template text; default: the tokenizer's",
        aliases=("--chat-template-file",),
    ),
    Flag(
        "--sampling-defaults",
        "model.sampling_defaults",
        "from the model's generation config or those of the OpenAI API",
        choices=("model", "openai"),
    ),
    Flag(
        "--generation-config",
        "model.sampling_defaults",
        "as --sampling-defaults",
        choices=("model", "openai"),
        synonyms=(("auto", "model"), ("vllm", "openai")),
    ),
    Flag(
        "--logprobs-mode",
        "model.logprobs_mode",
        "log-probabilities of output: of the raw model distribution, or after bias, penalties and "
        "temperature; those of prompts are always raw",
        choices=("raw_logprobs", "processed_logprobs"),
        synonyms=(("raw", "raw_logprobs"), ("processed", "processed_logprobs")),
    ),
    Flag(
        "--reasoning-parser",
        "model.reasoning_parser",
        "puts reasoning apart from the content: auto, deepseek-r1, deepseek-v3, deepseek-v4, "
        "deepseek-v41, qwen3, qwen3-thinking; default: none",
    ),
    Flag(
        "--tool-call-parser",
        "model.tool_call_parser",
        "how the model writes calls: auto (default), hermes, qwen25, llama3, pythonic, deepseekv3, "
        "deepseekv31, deepseekv32, deepseekv4, deepseekv41; always hermes with a chat template "
        "that does not know tools",
    ),
)
