"""Bytes of cached rows: what one position, one ring row and one slot's tails take. No torch.

    ordinary  position: keys and values of every global layer; ring row: of one window layer
    latent    position: entries and index keys, one per m positions of each kv source;
              ring row: one latent; tails: values and gates of pairs that are not complete

Formats of latent rows are drawn in `layers/row_formats.py`; deepseek-v41.md 4.4 has the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ConfigError
from ..latent_config import LatentConfig
from ..model_config import ModelConfig

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class RowSizes:
    """`pair_bytes` is that of two positions, as a source of ratio 2 has one entry for both;
    `ring_row_bytes` that of one window layer, of which there are `num_rings`."""

    pair_bytes: int
    ring_row_bytes: int
    num_rings: int
    tail_bytes: int = 0

    @property
    def token_bytes(self) -> float:
        """Of one position, on average."""
        return self.pair_bytes / 2

    @classmethod
    def of(cls, model: ModelConfig, kv_dtype: str, draft_tokens: int = 0) -> RowSizes:
        """`draft_tokens`: most that a step verifies; without any the draft head has no rings.
        Raises: ConfigError for a form that the model's caches do not have."""
        known = tuple(LATENT_ROWS) if model.latent else tuple(DTYPE_BYTES)
        if kv_dtype not in known:
            raise ConfigError(f"--kv-cache-dtype {kv_dtype}: must be one of {', '.join(known)}")
        if model.latent is not None:
            return _latent(model, model.latent, kv_dtype, draft_tokens)
        row = 2 * model.num_kv_heads * model.head_dim * DTYPE_BYTES[kv_dtype]
        return cls(2 * len(model.global_layers) * row, row, len(model.window_layers))


def latent_row_bytes(kv_dtype: str, head_dim: int, key_dim: int) -> tuple[int, int, int]:
    """Of an entry, an index key, a ring row."""
    entry, key, ring = LATENT_ROWS[kv_dtype]
    return entry(head_dim), key(key_dim), ring(head_dim)


def tail_rows(draft_tokens: int) -> int:
    """Positions that a tail holds: a pair, and the drafts of a step; a power of two (S9)."""
    return 1 << (1 + draft_tokens).bit_length()


def _latent(model: ModelConfig, latent: LatentConfig, kv_dtype: str, draft_tokens: int) -> RowSizes:
    entry, key, ring = latent_row_bytes(kv_dtype, model.head_dim, latent.indexer.head_dim)
    ratios = [latent.ratios[layer] for layer in latent.kv_sources]
    pairs = ratios.count(2)
    return RowSizes(
        pair_bytes=sum((entry + key) * 2 // ratio for ratio in ratios),
        ring_row_bytes=ring,
        num_rings=len(model.layers) + (latent.draft.num_blocks if draft_tokens else 0),
        tail_bytes=pairs * tail_rows(draft_tokens) * 2 * model.head_dim * DTYPE_BYTES["float32"],
    )


def _plain(size: int) -> Callable[[int], int]:
    return lambda n: n * size


def _fp8(n: int) -> int:
    return n + n // 32


LATENT_ROWS: dict[str, tuple[Callable[[int], int], ...]] = {
    "fp4": (lambda n: n // 2 + n // 16, lambda n: n // 2 + n // 32, _fp8),
    "fp8": (_fp8, lambda n: n + 4, _fp8),
    "bfloat16": (_plain(2),) * 3,
    "float32": (_plain(4),) * 3,
}
