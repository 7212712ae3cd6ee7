"""Texts and ids of a wanted length, for tokenizers that split words and for none."""

from __future__ import annotations

import random
from array import array

import pytest

from treadle.bench.vocabulary import WORDS, read_vocabulary


def split(text: str) -> list[str]:
    return text.split()


async def test_words_of_one_token_are_told_from_others():
    async def encode(text: str, special: bool) -> list[int]:
        parts = [[len(w), 99] if w == "which" else [sum(map(ord, w))] for w in split(text)]
        return [7] * special + [token for part in parts for token in part]

    words = await read_vocabulary(encode)
    assert set(words.words) == set(WORDS) - {"which"} and words.prefix == (7,)
    assert len(words.ids) == len(words.words) and words.tokens_per_word == 1
    assert len(words.token_ids(random.Random(0), 40)) == 40


async def test_a_tokenizer_that_splits_words_gets_fewer_of_them():
    async def encode(text: str, special: bool) -> list[int]:
        return [ord(letter) for word in split(text) for letter in word[:3].ljust(3)]

    words = await read_vocabulary(encode)
    assert words.tokens_per_word == 3 and words.prefix == ()
    assert len(split(words.text(random.Random(0), 30))) == 10


async def test_without_a_tokenizer_there_are_words_only():
    async def encode(text: str, special: bool) -> None:
        return None

    for words in (await read_vocabulary(None), await read_vocabulary(encode)):
        assert words.words == WORDS and len(split(words.text(random.Random(0), 12))) == 12
        with pytest.raises(ValueError, match="--tokenizer"):
            words.token_ids(random.Random(0), 12)


async def test_equal_numbers_spell_equal_words_and_ids():
    async def encode(text: str, special: bool) -> list[int]:
        return [WORDS.index(word) for word in split(text)]

    words = await read_vocabulary(encode)
    one, same, other = words.spelled(array("i", [3, 3, 5]))
    assert one == same != other
    assert split(words.worded(array("i", [3, 3]))) == [WORDS[one]] * 2
    assert len(set(words.spelled(array("i", range(1000, 2000))))) > 200
