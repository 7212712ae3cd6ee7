"""Spelling of pieces: every byte has one character and comes back from it."""

from __future__ import annotations

from dataclasses import replace

from tokenizers import Tokenizer as MergeEngine
from tokenizers import pre_tokenizers
from tokenizers.models import BPE

from treadle.srt.tokenizer.vocabulary import BYTE_CHARS, Spelling, Vocabulary

PIECES = ["Ġhi", "<0xE2>", "<0xZZ>", "▁a▁", "é", "two words", ""]


def vocabulary(spelling: Spelling) -> Vocabulary:
    return Vocabulary(
        engine=MergeEngine(BPE()),
        spelling=spelling,
        pieces=PIECES,
        literals={},
        special=frozenset(),
        prefix=(),
        suffix=(),
        bos_id=None,
        eos_ids=(),
        role_texts={},
        has_dummy_prefix=False,
        chat_template=None,
        architecture="",
    )


def test_table_is_that_of_the_tokenizers_library():
    engine = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert sorted(BYTE_CHARS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    for point in (*range(0x80), 0x85, 0xAD, 0x7FF, 0x20AC, 0x1F600):
        ((spelled, _),) = engine.pre_tokenize_str(chr(point))
        assert spelled == "".join(BYTE_CHARS[byte] for byte in chr(point).encode())


def test_byte_level_pieces_are_bytes():
    found = [vocabulary(Spelling.BYTE_LEVEL).piece_bytes(i) for i in range(len(PIECES))]
    assert found[0] == b" hi"
    assert found[4] == b"\xe9"
    assert found[5] == b"two words"  # the table has no space: not written in it
    assert found[6] == b""


def test_sentencepiece_pieces_are_text_or_one_byte():
    found = [vocabulary(Spelling.SENTENCEPIECE).piece_bytes(i) for i in range(len(PIECES))]
    assert found[1:5] == [b"\xe2", b"<0xZZ>", b" a ", "é".encode()]


def test_literals_are_spelled_as_they_are():
    literal = replace(vocabulary(Spelling.BYTE_LEVEL), literals={4: "é"})
    assert literal.piece_bytes(4) == "é".encode()


def test_ids_outside_have_no_bytes():
    for token_id in (-1, len(PIECES), 1 << 40):
        assert vocabulary(Spelling.SENTENCEPIECE).piece_bytes(token_id) == b""
