"""Vocabularies from GGUF metadata, against ids that llama.cpp gave for the demo models."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from treadle.srt.errors import CheckpointError
from treadle.srt.tokenizer.encode import Tokenizer
from treadle.srt.tokenizer.vocabulary import BYTE_CHARS

from .conftest import GgufWriter, write_keys

GOLDEN = Path(__file__).parent / "data" / "llama_cpp_ids.json"


@pytest.fixture(scope="module")
def golden() -> dict[str, list[object]]:
    loaded: dict[str, list[object]] = orjson.loads(GOLDEN.read_bytes())
    return loaded


def assert_ids_equal(tokenizer: Tokenizer, golden: dict[str, list[object]], model: str) -> None:
    for text, expected in zip(golden["texts"], golden[model], strict=True):
        assert isinstance(text, str)
        assert tokenizer.encode(text, add_special=False) == expected, repr(text)


def test_gemma_ids_equal_llama_cpp(gemma: Tokenizer, golden: dict[str, list[object]]):
    assert_ids_equal(gemma, golden, "gemma3-270m")


def test_smollm_ids_equal_llama_cpp(smollm: Tokenizer, golden: dict[str, list[object]]):
    assert_ids_equal(smollm, golden, "smollm2-135m")


def test_gemma_text_survives_both_ways(gemma: Tokenizer, golden: dict[str, list[object]]):
    for text in golden["texts"]:
        assert isinstance(text, str)
        ids = gemma.encode(text, add_special=False)
        assert gemma.decode(ids, skip_special=False) == text.replace("▁", " ")


def test_smollm_text_survives_unless_the_model_lacks_its_bytes(
    smollm: Tokenizer, golden: dict[str, list[object]]
):
    written = {smollm.token_bytes(index) for index in range(smollm.vocab_size)}
    lacking = {byte for byte in range(256) if bytes([byte]) not in written}
    assert len(lacking) == 21
    survivors = [x for x in golden["texts"] if isinstance(x, str) and not set(x.encode()) & lacking]
    assert len(survivors) > 400
    for text in survivors:
        ids = smollm.encode(text, add_special=False)
        assert smollm.decode(ids, skip_special=False) == text


def test_demo_models_say_how_texts_begin_and_end(gemma: Tokenizer, smollm: Tokenizer):
    assert (gemma.vocab_size, gemma.bos_id, gemma.eos_ids, gemma.add_bos) == (
        262144, 2, (1, 106), True,
    )  # fmt: skip
    assert gemma.encode("", add_special=True) == [2]
    assert gemma.chat_template is None
    assert gemma.architecture == "gemma3"
    assert (smollm.vocab_size, smollm.bos_id, smollm.eos_ids, smollm.add_bos) == (
        49152, 1, (2, 0), False,
    )  # fmt: skip
    assert smollm.encode("", add_special=True) == []
    assert smollm.role_texts["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in str(smollm.chat_template)


def pieces(tokenizer: Tokenizer, text: str) -> list[bytes]:
    return [tokenizer.token_bytes(index) for index in tokenizer.encode(text, add_special=False)]


def test_best_score_merges_first(sentencepiece_file: GgufWriter):
    tokenizer = Tokenizer.load(sentencepiece_file({"add_space_prefix": False}))
    assert pieces(tokenizer, "abc") == [b"ab", b"c"]
    assert pieces(tokenizer, " abc") == [b" a", b"bc"]  # leaves " ab" unused: its score is worse


def test_characters_without_a_piece_become_bytes(sentencepiece_file: GgufWriter):
    tokenizer = Tokenizer.load(sentencepiece_file({"add_space_prefix": False}))
    assert pieces(tokenizer, "aé") == [b"a", b"\xc3", b"\xa9"]


def test_user_defined_pieces_are_cut_out_longest_first(sentencepiece_file: GgufWriter):
    tokenizer = Tokenizer.load(sentencepiece_file({"add_space_prefix": False}))
    assert pieces(tokenizer, "a[cut][cut][cut]b") == [b"a", b"[cut][cut]", b"[cut]", b"b"]
    ids = tokenizer.encode("a[cut]", add_special=False)
    assert tokenizer.decode(ids, skip_special=True) == "a[cut]"  # cut out, but not special


def test_dummy_space_is_put_before_every_stretch_of_text(sentencepiece_file: GgufWriter):
    tokenizer = Tokenizer.load(sentencepiece_file({}))
    assert pieces(tokenizer, "a") == [b" a"]
    assert pieces(tokenizer, "<s>a</s>b") == [b"<s>", b" a", b"</s>", b" ", b"b"]
    ids = tokenizer.encode("a b", add_special=True)
    assert tokenizer.decode(ids, skip_special=True) == "a b"


def test_bos_is_added_unless_the_file_says_no(sentencepiece_file: GgufWriter):
    assert Tokenizer.load(sentencepiece_file({})).encode("", add_special=True) == [1]
    tokenizer = Tokenizer.load(sentencepiece_file({"add_bos_token": False, "add_eos_token": True}))
    assert tokenizer.encode("", add_special=True) == [2]
    assert not tokenizer.add_bos


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"model": "t5"}, "expected gpt2 or llama, found t5"),
        ({"tokens": ["a"] * 269}, "tokens: 268 repeated"),
        ({"token_type": [1]}, "token_type: expected 269 entries, found 1"),
        ({"scores": [0.5]}, "scores: expected 269 entries, found 1"),
    ],
)
def test_unusable_metadata_is_named(
    sentencepiece_file: GgufWriter, over: dict[str, object], message: str
):
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(sentencepiece_file(over))


def byte_level_file(path: Path, pre: str, absent: str = "") -> Path:
    texts = [char for char in BYTE_CHARS if char not in absent]
    texts += ["ab", "12", "123", "ĠĠ", "abc", "=-"]
    keys = {"model": "gpt2", "pre": pre, "tokens": texts, "token_type": [1] * len(texts)}
    merges = ["a b", "1 2", "12 3", "Ġ Ġ", "= -", "not there"]
    return write_keys(path, {**keys, "merges": merges})


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", [b"ab", b"c", b"123", b"4"]),
        ("smollm", [b"ab", b"c", b"1", b"2", b"3", b"4"]),
        ("qwen2", [b"ab", b"c", b"1", b"2", b"3", b"4"]),
        ("llama-bpe", [b"abc", b"123", b"4"]),  # "abc" has no merge, but is a whole word
        ("default", [b"ab", b"c", b"123", b"4"]),
    ],
)
def test_pre_tokenizer_cuts_words_and_digits(tmp_path: Path, pre: str, expected: list[bytes]):
    assert pieces(Tokenizer.load(byte_level_file(tmp_path / "x.gguf", pre)), "abc1234") == expected


def test_unknown_pre_tokenizer_is_refused_with_the_known_ones(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"expected one of default, .*qwen2.*, found odd"):
        Tokenizer.load(byte_level_file(tmp_path / "x.gguf", "odd"))


def test_nothing_merges_across_a_byte_that_the_model_lacks(tmp_path: Path):
    absent = BYTE_CHARS[0x16]
    tokenizer = Tokenizer.load(byte_level_file(tmp_path / "x.gguf", "gpt-2", absent))
    assert pieces(tokenizer, "=-") == [b"=-"]
    assert pieces(tokenizer, "=\x16-") == [b"=", b"-"]
