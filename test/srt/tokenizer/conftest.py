"""Small tokenizers of both kinds, made on the spot; the demo models where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import orjson
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from treadle.srt.demo import demo_path
from treadle.srt.errors import ConfigError
from treadle.srt.tokenizer import encode

TRAINING = ["the cat sat on the mat", "hello world, hello there", "def f(x):\n    return x"] * 4


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level BPE with all 256 bytes, BOS by post-processor, one special and one plain token."""
    engine = Tokenizer(BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=300,
        special_tokens=["<bos>", "<eos>", "<turn>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(TRAINING, trainer)
    engine.add_tokens([AddedToken("<plain é>", normalized=False)])
    engine.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 0)]
    )
    engine.enable_truncation(4)
    folder = tmp_path_factory.mktemp("tiny")
    engine.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": {"content": "<bos>", "special": True},
        "eos_token": "<eos>",
        "chat_template": [{"name": "default", "template": "{{ bos_token }}from the config"}],
    }
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps(config))
    (folder / "generation_config.json").write_bytes(orjson.dumps({"eos_token_id": [1, 2]}))
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> encode.Tokenizer:
    return encode.Tokenizer.load(tiny_folder)


GgufWriter = Callable[[dict[str, object]], Path]


@pytest.fixture
def sentencepiece_file(tmp_path: Path) -> GgufWriter:
    """Writes a llama-kind vocabulary: `over` replaces or (None) removes `tokenizer.ggml.*` keys."""

    def write(over: dict[str, object]) -> Path:
        texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        types = [2, 3, 3] + [6] * 256
        scores = [0.0] * len(texts)
        ranked = ["▁a", "ab", "bc", "▁ab", "▁", "a", "b", "c"]
        texts += [*ranked, "[cut]", "[cut][cut]"]
        types += [1] * len(ranked) + [4, 4]
        scores += [-float(rank) for rank in range(len(ranked))] + [-1000.0, -1000.0]
        keys: dict[str, object] = {"model": "llama", "tokens": texts, "scores": scores}
        return write_keys(tmp_path / "tiny.gguf", {**keys, "token_type": types, **over})

    return write


def write_keys(path: Path, keys: dict[str, object]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in keys.items():
        if isinstance(value, list):
            writer.add_array(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def gemma() -> encode.Tokenizer:
    return load_demo("gemma3-270m")


@pytest.fixture(scope="session")
def smollm() -> encode.Tokenizer:
    return load_demo("smollm2-135m")


def load_demo(name: str) -> encode.Tokenizer:
    try:
        path = demo_path(name)
    except ConfigError as error:
        pytest.skip(error.message)
    return encode.Tokenizer.load(path)
