"""What every id spells, in one message for grammars. Made once, while the weights are loaded."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..token_masks import TokenBytes
from .encode import Tokenizer

WORD_BYTES = 4


def token_table(tokenizer: Tokenizer, eos_ids: Sequence[int]) -> TokenBytes:
    """0.4 s for 262,144 ids. `eos_ids`: all that may end an answer of the model.

    An id that stands for one byte is left out where a whole piece is that byte: encoding uses it
    for what has no piece only, and a model that was never shown one should not be made to say it.
    """
    spelled = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    single = {i for i in range(tokenizer.vocab_size) if tokenizer.is_byte(i)}
    whole = {data for i, data in enumerate(spelled) if i not in single}
    for i in single:
        if spelled[i] in whole:
            spelled[i] = b""
    data = b"".join(spelled)
    return TokenBytes(
        lengths=array("i", map(len, spelled)),
        data=array("i", data + b"\0" * (-len(data) % WORD_BYTES)),
        special_ids=array("i", sorted(tokenizer.special_ids)),
        eos_ids=array("i", eos_ids),
    )
