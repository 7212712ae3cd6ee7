"""What a checkpoint says of its tokenizer, in one value: the merge engine, the pieces, the ids.

Owns how a piece is spelled, that is, which bytes an id stands for. Two spellings exist:

    BYTE_LEVEL      each character of a piece stands for one byte (GPT-2's table): "Ġhi" is b" hi"
    SENTENCEPIECE   U+2581 is a space, "<0xE2>" is one byte, all else is UTF-8

Invariants: `pieces[id]` is "" for an id that the vocabulary does not use; `literals` holds the
pieces that are cut out of the text before any merging and are spelled as they are; `special` is
a subset of their ids. Where the facts come from is `gguf_vocab.py` and `folder_vocab.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tokenizers import Tokenizer as MergeEngine

SPACE_MARK = "\u2581"  # SentencePiece's visible space


class Spelling(Enum):
    BYTE_LEVEL = "byte_level"
    SENTENCEPIECE = "sentencepiece"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`prefix` and `suffix` are the ids put around a text that wants special tokens.

    `has_dummy_prefix`: encoding puts a space before the text that decoding takes away again.
    `role_texts` are the names templates use: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    """

    engine: MergeEngine
    spelling: Spelling
    pieces: list[str]
    literals: dict[int, str]
    special: frozenset[int]
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    bos_id: int | None
    eos_ids: tuple[int, ...]
    role_texts: dict[str, str]
    has_dummy_prefix: bool
    chat_template: str | None
    architecture: str

    def piece_bytes(self, token_id: int) -> bytes:
        """The exact bytes of an id; empty for an id outside the vocabulary."""
        if token_id in self.literals:
            return self.literals[token_id].encode()
        piece = self.pieces[token_id] if 0 <= token_id < len(self.pieces) else ""
        if self.spelling is Spelling.BYTE_LEVEL:
            return _byte_level(piece)
        return _sentencepiece(piece)

    def is_byte(self, token_id: int) -> bool:
        """Whether the piece is spelled "<0xE2>": the fallback for what has no piece."""
        if self.spelling is not Spelling.SENTENCEPIECE or token_id in self.literals:
            return False
        piece = self.pieces[token_id]
        return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _byte_level(piece: str) -> bytes:
    try:
        return bytes([BYTE_OF_CHAR[char] for char in piece])
    except KeyError:  # a piece that was never written in the table's characters
        return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            return piece.encode()
    return piece.replace(SPACE_MARK, " ").encode()


def _byte_chars() -> list[str]:
    """GPT-2's table: printable Latin-1 stands for itself, the rest is moved up from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars = [chr(byte) for byte in range(256)]
    moved = [byte for byte in range(256) if byte not in printable]
    for index, byte in enumerate(moved):
        chars[byte] = chr(0x100 + index)
    return chars


BYTE_CHARS = _byte_chars()
BYTE_OF_CHAR = {char: byte for byte, char in enumerate(BYTE_CHARS)}
