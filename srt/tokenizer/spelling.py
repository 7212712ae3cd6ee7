"""What the ids of a vocabulary spell, for the process that works on grammars."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from ..token_masks import TokenBytes
from .encode import Tokenizer

INT_BYTES = 4


def spell_tokens(tokenizer: Tokenizer, eos_ids: Iterable[int]) -> TokenBytes:
    """`eos_ids` are all that may end an answer. Takes half a second for 262,144 ids."""
    spelled = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
    data = b"".join(spelled)
    packed = array("i")
    packed.frombytes(data + b"\0" * (-len(data) % INT_BYTES))
    return TokenBytes(
        lengths=array("i", map(len, spelled)),
        data=packed,
        special_ids=array("i", sorted(tokenizer.special_ids)),
        eos_ids=array("i", eos_ids),
    )
