"""What the files of a Hugging Face folder say, and which of them wins."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from treadle.srt.errors import CheckpointError
from treadle.srt.tokenizer.encode import Tokenizer


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def edit(path: Path, **changes: object) -> None:
    value = orjson.loads(path.read_bytes()) if path.exists() else {}
    path.write_bytes(orjson.dumps({**value, **changes}))


def test_template_file_wins_over_the_config(folder: Path):
    (folder / "chat_template.jinja").write_text("from the file")
    assert Tokenizer.load(folder).chat_template == "from the file"


def test_template_may_be_plain_text_or_absent(folder: Path):
    edit(folder / "tokenizer_config.json", chat_template="plain")
    assert Tokenizer.load(folder).chat_template == "plain"
    edit(folder / "tokenizer_config.json", chat_template=None)
    assert Tokenizer.load(folder).chat_template is None


@pytest.mark.parametrize(("flag", "expected"), [(True, [0]), (False, []), (None, [0])])
def test_add_bos_token_of_the_config_overrides(
    folder: Path, flag: bool | None, expected: list[int]
):
    edit(folder / "tokenizer_config.json", add_bos_token=flag)
    assert Tokenizer.load(folder).encode("", add_special=True) == expected


def test_add_bos_token_works_without_a_post_processor(folder: Path):
    edit(folder / "tokenizer.json", post_processor=None)
    assert Tokenizer.load(folder).encode("", add_special=True) == []
    edit(folder / "tokenizer_config.json", add_bos_token=True)
    assert Tokenizer.load(folder).encode("", add_special=True) == [0]


def test_eos_ids_come_from_the_model_config_when_nothing_else_lists_them(folder: Path):
    edit(folder / "config.json", eos_token_id=7, model_type="llama")
    assert Tokenizer.load(folder).eos_ids == (1, 2)
    (folder / "generation_config.json").unlink()
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.eos_ids == (1, 7)
    assert tokenizer.architecture == "llama"


def sentencepiece(folder: Path, decoder: dict[str, object]) -> Tokenizer:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    steps = [{"type": "Prepend", "prepend": "▁"}]
    description = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *steps,
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {text: index for index, text in enumerate(texts)},
            "merges": [["▁", "a"]],
        },
    }
    (folder / "tokenizer.json").write_bytes(orjson.dumps(description))
    return Tokenizer.load(folder)


LLAMA_DECODER: dict[str, object] = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}


@pytest.mark.parametrize("decoder", [LLAMA_DECODER, METASPACE], ids=["llama", "metaspace"])
def test_sentencepiece_decoders_take_the_dummy_space_away(
    tmp_path: Path, decoder: dict[str, object]
):
    tokenizer = sentencepiece(tmp_path, decoder)
    ids = tokenizer.encode("a aé", add_special=False)
    assert tokenizer.decode(ids, skip_special=True) == "a aé"
    assert tokenizer.token_bytes(ids[0]) == b" a"


def test_metaspace_that_prepends_nothing_strips_nothing(tmp_path: Path):
    tokenizer = sentencepiece(tmp_path, {**METASPACE, "prepend_scheme": "never"})
    assert not tokenizer.has_dummy_prefix


def test_unknown_decoder_is_refused(folder: Path):
    edit(folder / "tokenizer.json", decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
    with pytest.raises(CheckpointError, match="decoder: expected ByteLevel.*found WordPiece"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[1]"])
def test_broken_files_are_named(folder: Path, name: str, content: bytes):
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        Tokenizer.load(folder)
