"""A `Vocabulary` from the metadata of a GGUF file.

Owns the reading of the `tokenizer.ggml.*` keys for two models of tokenizer and says what each is
in terms of the `tokenizers` library; ids are equal to llama.cpp's (tested on its own output).

    gpt2    byte-level BPE with listed merges; `tokenizer.ggml.pre` names the cutting regexes
    llama   SentencePiece BPE: the pair whose joint piece has the highest score merges first

A score table becomes a merge list by asking of each piece, from the highest score down, at which
places it falls into two other pieces. For equal scores llama.cpp takes the leftmost pair, ours the
pair listed first; real vocabularies have distinct scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex
from tokenizers import Tokenizer as MergeEngine
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer, Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ..errors import CheckpointError
from ..gguf import GgufFile
from ..gguf_config import end_ids
from .vocabulary import BYTE_CHARS, SPACE_MARK, Spelling, Vocabulary

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # of tokenizer.ggml.token_type

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_MODERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _MODERN.replace("DIGITS", "{1,3}")
_QWEN2 = _MODERN.replace("DIGITS", "")
_FALLBACK = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class _Cut:
    """How text is cut before merging. `whole_words`: a word that is a piece is never merged."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_CUTS = {
    "default": _Cut(_FALLBACK),
    "gpt-2": _Cut((_GPT2,)),
    "smollm": _Cut((r"\p{N}", _GPT2)),
    "starcoder": _Cut((r"\p{N}", _GPT2)),
    "llama-bpe": _Cut((_LLAMA3,), whole_words=True, adds_bos=True),
    "llama3": _Cut((_LLAMA3,), whole_words=True, adds_bos=True),
    "llama-v3": _Cut((_LLAMA3,), whole_words=True, adds_bos=True),
    "qwen2": _Cut((_QWEN2,)),
    "deepseek-r1-qwen": _Cut((_QWEN2,)),
}


def read_gguf_vocabulary(path: Path) -> Vocabulary:
    """Raises: CheckpointError when the file is unusable or its tokenizer is of another model."""
    file = GgufFile.open(path)
    model = file.value("tokenizer.ggml.model", str)
    pieces = [
        piece or f"[EMPTY_{index}]"
        for index, piece in enumerate(file.values("tokenizer.ggml.tokens", str))
    ]
    ids = {piece: index for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise CheckpointError(f"{path}: tokenizer.ggml.tokens: {len(pieces) - len(ids)} repeated")
    types = file.values("tokenizer.ggml.token_type", int)
    if len(types) != len(pieces):
        raise CheckpointError(
            f"{path}: tokenizer.ggml.token_type: expected {len(pieces)} entries, found {len(types)}"
        )
    if model == "gpt2":
        return _finish(file, _byte_level_engine(file, ids), Spelling.BYTE_LEVEL, pieces, types)
    if model == "llama":
        engine = _sentencepiece_engine(file, pieces, ids)
        return _finish(file, engine, Spelling.SENTENCEPIECE, pieces, types)
    raise CheckpointError(f"{path}: tokenizer.ggml.model: expected gpt2 or llama, found {model}")


def _byte_level_engine(file: GgufFile, ids: dict[str, int]) -> MergeEngine:
    cut = _cut(file)
    merges = [
        (left, right)
        for left, _, right in (
            merge.partition(" ") for merge in file.values("tokenizer.ggml.merges", str)
        )
        if left in ids and right in ids and left + right in ids
    ]
    engine = MergeEngine(BPE(ids, merges, ignore_merges=cut.whole_words))
    steps: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
    absent = [char for char in BYTE_CHARS if char not in ids]
    if absent:
        # The engine would drop a byte without a piece and then merge across the gap.
        unwritable = "".join(f"\\x{{{ord(char):x}}}" for char in absent)
        steps.append(Split(Regex(f"[{unwritable}]"), "removed"))
    engine.pre_tokenizer = PreTokenizers(steps)
    return engine


def _cut(file: GgufFile) -> _Cut:
    name = file.value("tokenizer.ggml.pre", str, "default")
    if name not in _CUTS:
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.pre: expected one of {', '.join(_CUTS)}, found {name}"
        )
    return _CUTS[name]


def _sentencepiece_engine(file: GgufFile, pieces: list[str], ids: dict[str, int]) -> MergeEngine:
    scores = file.values("tokenizer.ggml.scores", float)
    if len(scores) != len(pieces):
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.scores: expected {len(pieces)} entries, "
            f"found {len(scores)}"
        )
    unknown = file.value("tokenizer.ggml.unknown_token_id", int, 0)
    merges = _merges_by_score(pieces, scores, ids)
    bpe = BPE(ids, merges, unk_token=pieces[unknown], fuse_unk=True, byte_fallback=True)
    engine = MergeEngine(bpe)
    steps: list[Normalizer] = [Replace(" ", SPACE_MARK)]
    if _has_dummy_prefix(file):
        steps.insert(0, Prepend(SPACE_MARK))
    engine.normalizer = Normalizers(steps)
    return engine


def _merges_by_score(
    pieces: list[str], scores: list[float], ids: dict[str, int]
) -> list[tuple[str, str]]:
    """1.1 s for Gemma's 262,144 pieces, which give 514,847 merges; a pass in numpy is no faster."""
    merges: list[tuple[str, str]] = []
    for index in sorted(range(len(pieces)), key=scores.__getitem__, reverse=True):
        piece = pieces[index]
        for place in range(1, len(piece)):
            left = piece[:place]
            if left in ids:
                right = piece[place:]
                if right in ids:
                    merges.append((left, right))
    return merges


def _has_dummy_prefix(file: GgufFile) -> bool:
    return file.value("tokenizer.ggml.add_space_prefix", bool, True)


def _finish(
    file: GgufFile,
    engine: MergeEngine,
    spelling: Spelling,
    pieces: list[str],
    types: list[int],
) -> Vocabulary:
    is_sentencepiece = spelling is Spelling.SENTENCEPIECE
    special = frozenset(i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL))
    literals = {i: pieces[i] for i, kind in enumerate(types) if kind == USER_DEFINED}
    engine.add_tokens([AddedToken(text, normalized=False) for text in literals.values()])
    literals |= {i: pieces[i] for i in sorted(special)}
    engine.add_special_tokens([AddedToken(pieces[i], normalized=False) for i in sorted(special)])
    # Absent keys mean what llama.cpp takes them to mean.
    bos_id = _id(file, "bos_token_id", 1 if is_sentencepiece else 11, pieces)
    eos_id = _id(file, "eos_token_id", 2 if is_sentencepiece else 11, pieces)
    adds_bos_by_kind = True if is_sentencepiece else _cut(file).adds_bos
    adds_bos = file.value("tokenizer.ggml.add_bos_token", bool, adds_bos_by_kind)
    adds_eos = file.value("tokenizer.ggml.add_eos_token", bool, False)
    return Vocabulary(
        engine=engine,
        spelling=spelling,
        pieces=pieces,
        literals=literals,
        special=special,
        prefix=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix=(eos_id,) if adds_eos and eos_id is not None else (),
        bos_id=bos_id,
        eos_ids=_in_range((eos_id, *end_ids(file)), len(pieces)),
        role_texts=_role_texts(file, pieces, bos_id, eos_id),
        has_dummy_prefix=is_sentencepiece and _has_dummy_prefix(file),
        chat_template=file.value("tokenizer.chat_template", str, "") or None,
        architecture=file.value("general.architecture", str, ""),
    )


def _id(file: GgufFile, key: str, default: int, pieces: list[str]) -> int | None:
    value = file.value(f"tokenizer.ggml.{key}", int, default)
    return value if 0 <= value < len(pieces) else None


def _in_range(ids: Sequence[int | None], size: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(i for i in ids if i is not None and 0 <= i < size))


def _role_texts(
    file: GgufFile, pieces: list[str], bos_id: int | None, eos_id: int | None
) -> dict[str, str]:
    roles = {
        "bos_token": bos_id,
        "eos_token": eos_id,
        "pad_token": _id(file, "padding_token_id", -1, pieces),
        "unk_token": _id(file, "unknown_token_id", -1, pieces),
    }
    return {name: pieces[index] for name, index in roles.items() if index is not None}
