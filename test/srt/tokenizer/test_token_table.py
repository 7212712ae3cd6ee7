"""The table of what ids spell, for grammars."""

from __future__ import annotations

from dataclasses import replace

from test.serving import BOS, EOS, TURN, byte_tokenizer
from treadle.srt.token_masks import TokenBytes
from treadle.srt.tokenizer.encode import Tokenizer
from treadle.srt.tokenizer.token_table import token_table
from treadle.srt.tokenizer.vocabulary import Spelling


def spelled(table: TokenBytes) -> list[bytes]:
    data, found, start = table.data.tobytes(), [], 0
    for length in table.lengths:
        found.append(data[start : start + length])
        start += length
    assert not any(data[start:])
    return found


def test_every_id_has_its_bytes():
    tokenizer = byte_tokenizer()
    table = token_table(tokenizer, (EOS, TURN))
    assert spelled(table) == [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    assert list(table.special_ids) == [BOS, EOS, TURN]
    assert list(table.eos_ids) == [EOS, TURN]


def test_byte_fallback_is_left_out_where_a_piece_spells_the_byte():
    """Gemma has both "<0x5F>" and "_": its encoder uses the first for nothing."""
    vocabulary = replace(
        byte_tokenizer()._vocabulary,
        spelling=Spelling.SENTENCEPIECE,
        pieces=["a", "<0x5F>", "<0xE2>", "_", "__", "<0x61>", "<0xZZ>", "<0x20>", "\u2581"],
        literals={},
        special=frozenset(),
    )
    found = spelled(token_table(Tokenizer(vocabulary), (0,)))
    assert found == [b"a", b"", b"\xe2", b"_", b"__", b"", b"<0xZZ>", b"", b" "]
