"""What ids spell, as one value."""

from __future__ import annotations

from test.serving import BOS, EOS, TURN, VOCAB_SIZE, byte_tokenizer
from treadle.srt.tokenizer.spelling import spell_tokens


def test_every_id_is_spelled_in_order():
    tokenizer = byte_tokenizer()
    table = spell_tokens(tokenizer, [EOS])
    assert len(table.lengths) == VOCAB_SIZE
    data, start = table.data.tobytes(), 0
    for token_id, length in enumerate(table.lengths):
        assert data[start : start + length] == tokenizer.token_bytes(token_id)
        start += length
    assert not any(data[start:])
    assert len(data) % 4 == 0
    assert list(table.special_ids) == [BOS, EOS, TURN]
    assert list(table.eos_ids) == [EOS]
    assert table.lengths[VOCAB_SIZE - 1] == 0  # an id that no text becomes
