"""LatentConfig: the structure of DeepSeek-V4.1 beyond an ordinary decoder. No torch.

Owns the roles of layers. A layer's ratio is 0 (window only), or m: it attends compressed entries of
m positions each, those of the nearest *kv source* at or below it, picked by the nearest *index
source* at or below it. Layers below the last kv source are the encoder; that source itself, the
*cut*, and the layers above are the decoder, whose growing state comes from encoder output alone.
Source: deepseek-v41.md 1.1, 3.1. The reader of `config.json` is `deepseek_v41_config.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 32  # sides of a weight tile, and values that share one scale


@dataclass(frozen=True, slots=True)
class Yarn:
    """Frequency scaling of the rotary embedding where the ratio is not 0."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_len: int


@dataclass(frozen=True, slots=True)
class MoeConfig:
    num_experts: int
    num_chosen: int
    intermediate_size: int
    factor: float  # what the weights of the chosen experts sum to
    swiglu_limit: float


@dataclass(frozen=True, slots=True)
class HyperConfig:
    num_streams: int
    iterations: int
    eps: float


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    num_heads: int
    head_dim: int
    num_chosen: int
    candidate_blocks: int
    block_size: int  # entries per candidate block


@dataclass(frozen=True, slots=True)
class EngramConfig:
    """`rows[i]` is the size of the table of layer `layers[i]`."""

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    max_ngram: int
    num_heads: int
    head_dim: int
    prime_start: int
    num_compressed: int
    pad_id: int

    @property
    def num_columns(self) -> int:
        return (self.max_ngram - 1) * self.num_heads


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """DSpark. `num_blocks` 0: the checkpoint has no draft head."""

    num_blocks: int
    block_size: int
    noise_id: int
    taps: tuple[int, ...]
    markov_rank: int
    num_experts: int
    num_chosen: int


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """What the dense fields of ModelConfig cannot say. Layer numbers are those of the backbone."""

    rope_dim: int
    q_rank: int
    o_rank: int
    o_groups: int
    ratios: tuple[int, ...]
    kv_sources: tuple[int, ...]
    index_sources: tuple[int, ...]
    window_theta: float
    entry_theta: float
    yarn: Yarn
    moe: MoeConfig
    hyper: HyperConfig
    indexer: IndexerConfig
    engram: EngramConfig
    draft: DraftConfig

    @property
    def cut(self) -> int:
        """The last kv source: the first decoder layer, and the candidate source."""
        return self.kv_sources[-1]

    def kv_source(self, layer: int) -> int:
        """Whose entries a layer with a ratio attends."""
        return max(x for x in self.kv_sources if x <= layer)

    def index_source(self, layer: int) -> int:
        """Whose list of chosen entries a layer with a ratio uses."""
        return max(x for x in self.index_sources if x <= layer)

    @property
    def lookback(self) -> int:
        """Token ids before a row that its n-gram hash reads."""
        return self.engram.max_ngram - 1 if self.engram.layers else 0
