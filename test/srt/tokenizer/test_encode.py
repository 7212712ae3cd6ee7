"""The tokenizer's own promises, on a tiny byte-level vocabulary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as MergeEngine

from treadle.srt.errors import CheckpointError
from treadle.srt.tokenizer.encode import Tokenizer


@pytest.fixture(scope="module")
def engine(tiny_folder: Path) -> MergeEngine:
    engine = MergeEngine.from_file(str(tiny_folder / "tokenizer.json"))
    engine.no_truncation()
    return engine


@given(text=st.text())
def test_ids_are_those_of_the_library(tiny: Tokenizer, engine: MergeEngine, text: str):
    assert tiny.encode(text, add_special=False) == engine.encode(text, add_special_tokens=False).ids
    assert tiny.encode(text, add_special=True) == engine.encode(text).ids


@given(text=st.text())
def test_text_survives_both_ways(tiny: Tokenizer, text: str):
    ids = tiny.encode(text, add_special=False)
    assert tiny.decode(ids, skip_special=False) == text
    assert b"".join(map(tiny.token_bytes, ids)) == text.encode()


@given(ids=st.lists(st.integers(-5, 400)))
def test_any_ids_decode_as_in_the_library(tiny: Tokenizer, engine: MergeEngine, ids: list[int]):
    known = [i for i in ids if 0 <= i < tiny.vocab_size]
    plain_id = tiny.vocab_size - 1  # holds a space: the library's decoder spells it differently
    if plain_id not in known:
        expected = engine.decode(known, skip_special_tokens=True)
        assert tiny.decode(ids, skip_special=True) == expected


def test_special_tokens_in_a_text_become_ids(tiny: Tokenizer):
    ids = tiny.encode("<turn>the<eos>", add_special=False)
    assert (ids[0], ids[-1]) == (2, 1)
    assert tiny.decode(ids, skip_special=True) == "the"
    assert tiny.decode(ids, skip_special=False) == "<turn>the<eos>"


def test_plain_added_tokens_are_not_special(tiny: Tokenizer):
    ids = tiny.encode("<plain é>", add_special=False)
    assert ids == [tiny.vocab_size - 1]
    assert not tiny.is_special(ids[0])
    assert tiny.decode(ids, skip_special=True) == "<plain é>"


def test_long_texts_are_not_truncated(tiny: Tokenizer):
    assert len(tiny.encode("x" * 100, add_special=False)) == 100


def test_lone_surrogates_become_replacement_characters(tiny: Tokenizer):
    ids = tiny.encode("a\ud800b\ud83d\ude00", add_special=False)
    assert tiny.decode(ids, skip_special=False) == "a\ufffdb😀"


def test_part_of_a_character_has_exact_bytes_and_a_readable_text(tiny: Tokenizer):
    ids = tiny.encode("é", add_special=False)
    assert [tiny.token_bytes(i) for i in ids] == [b"\xc3", b"\xa9"]
    assert tiny.token_text(ids[0]) == "\ufffd"


def test_facts_of_the_model(tiny: Tokenizer):
    assert (tiny.bos_id, tiny.eos_ids, tiny.add_bos) == (0, (1, 2), True)
    assert tiny.chat_template == "{{ bos_token }}from the config"
    assert tiny.role_texts == {"bos_token": "<bos>", "eos_token": "<eos>"}


def test_threads_agree(tiny: Tokenizer):
    texts = [f"the cat {i} sat on the mat é {i}" for i in range(200)]
    alone = [tiny.encode(text, add_special=True) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: tiny.encode(text, add_special=True), texts))
    assert together == alone


def test_absent_model_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"expected a tokenizer\.json, found none"):
        Tokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"none\.gguf"):
        Tokenizer.load(tmp_path / "none.gguf")
