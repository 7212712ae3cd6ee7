"""The constants of an Engram hash: token map from the tokenizer, primes, multipliers
(deepseek-v41.md 2.9). All are functions of `tokenizer.json` and the configuration.

A token's key is its text folded to what a reader would call the same word; equal keys get one
compressed id, in first-seen order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ..errors import CheckpointError
from ..latent_config import EngramConfig

_LAYER_SEED = 10007
_SPACE = "\ue000"  # stands for a text that is one space, which strip would empty
_REPLACEMENT = "\ufffd"


def token_map(folder: Path, config: EngramConfig, vocab_size: int) -> list[int]:
    """Compressed id of every token id below `vocab_size`.

    Raises: CheckpointError when the number of distinct keys is not the configuration's: every hash
    would be another.
    """
    if config.num_compressed == vocab_size:
        return list(range(vocab_size))
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{path}: expected for the Engram token map, found no such file")
    tokenizer = Tokenizer.from_file(str(path))
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    seen: dict[str, int] = {}
    mapped = [seen.setdefault(_key(tokenizer, token), len(seen)) for token in range(size)]
    if len(seen) != config.num_compressed:
        raise CheckpointError(
            f"{path}: expected {config.num_compressed} distinct keys (engram_compressed_vocab_size)"
            f", found {len(seen)}"
        )
    return mapped + [mapped[config.pad_id]] * (vocab_size - size)


def _key(tokenizer: Tokenizer, token: int) -> str:
    text: str = tokenizer.decode([token], skip_special_tokens=False)
    if _REPLACEMENT in text:
        return str(tokenizer.id_to_token(token))
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(c for c in folded if unicodedata.category(c) != "Mn").lower()
    folded = re.sub(r"[ \t\r\n]+", " ", folded)
    folded = (_SPACE if folded == " " else folded).strip().replace(_SPACE, " ")
    return folded or text


def multipliers(layer: int, config: EngramConfig) -> list[int]:
    """One odd number per position of the longest n-gram."""
    bound = max(1, (2**63 - 1) // config.num_compressed // 2)
    drawn = np.random.default_rng(_LAYER_SEED * layer).integers(0, bound, config.max_ngram)
    return [2 * int(x) + 1 for x in drawn]


def primes(config: EngramConfig) -> list[list[list[int]]]:
    """By layer, n-gram size and head: consecutive primes from `prime_start` on."""
    found = iter(_primes_from(config.prime_start))
    sizes = range(config.max_ngram - 1)
    return [[[next(found) for _ in range(config.num_heads)] for _ in sizes] for _ in config.layers]


def _primes_from(start: int) -> Iterator[int]:
    """Primes at or above `start`, ascending, without end."""
    candidate = max(2, start)
    while True:
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            yield candidate
        candidate += 1
