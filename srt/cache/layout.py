"""KVLayout: what a page and a slot cost in bytes; and how many of each a memory budget holds.

A page is P positions of every global layer. A slot's share is one ring per window layer:

    page    P rows x (K, V) x global layers
    slot    C rows x (K, V) x window layers                    row of position q: slot * C + q % C
            C = align_up(W + draft tokens, row alignment)      S3: one row less only worsens text
            C = align_up(W + 2P + draft tokens, ..)            when windows are kept (`warm.py`)

A kept window needs W + P - 1 rows, for its own end. The rest of the second page is how far a
request may have gone on when another copies its window at the end of the prompt.

Page 0 and slot 0 are sinks of padding rows and are counted, because they are allocated.
The budget is for pages and rings; scratch of the attention is the worker's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import CacheSection
from ..errors import ConfigError
from ..model_config import ModelConfig
from .row_sizes import RowSizes


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Sizes of one rank."""

    page_size: int
    rows: RowSizes
    window: int
    ring_rows: int
    num_warm: int = 0  # slots beyond one for each running request

    @classmethod
    def from_config(
        cls, model: ModelConfig, cache: CacheSection, draft_tokens: int, row_align: int
    ) -> KVLayout:
        """`draft_tokens`: rows a verify step may write beyond the committed length (0 without
        speculation). `row_align`: ring rows are a multiple of it. Raises: ConfigError."""
        if cache.page_size < 2 or cache.page_size % 2:
            raise ConfigError(f"--page-size {cache.page_size}: must be even and at least 2")
        num_window = len(model.window_layers)
        if num_window and model.window < 1:
            raise ConfigError(f"window {model.window} must be positive: {num_window} window layers")
        return cls(
            page_size=cache.page_size,
            rows=RowSizes.of(model, cache.kv_dtype, draft_tokens),
            window=model.window if num_window else 0,
            ring_rows=ring_rows(model, cache, draft_tokens, row_align),
            num_warm=max(0, cache.warm_windows) if num_window else 0,
        )

    @property
    def token_bytes(self) -> float:
        """Global KV of one position."""
        return self.rows.token_bytes

    @property
    def page_bytes(self) -> int:
        return self.page_size // 2 * self.rows.pair_bytes

    @property
    def slot_bytes(self) -> int:
        """Rings and tails of one slot."""
        rings = self.rows.num_rings * self.ring_rows * self.rows.ring_row_bytes
        return rings + self.rows.tail_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """Counts include page 0 and slot 0."""

    num_pages: int
    num_slots: int


def ring_rows(
    model: ModelConfig, cache: CacheSection, draft_tokens: int = 0, row_align: int = 1
) -> int:
    """C; 0 without window layers. A number of warm windows that is not settled yet counts as some:
    `resolve` asks for the bytes before it decides."""
    if not model.window_layers:
        return 0
    spare = 2 * cache.page_size if cache.warm_windows else 0
    return align_up(model.window + spare + draft_tokens, row_align)


def plan_capacity(
    layout: KVLayout,
    budget_bytes: int,
    max_running: int,
    cap_tokens: int,
    context_len: int,
    chunk_tokens: int,
) -> Capacity:
    """Split `budget_bytes`: rings of `max_running` + warm + 1 slots first, the rest is pages.

    `cap_tokens`: upper limit of global-KV tokens, -1 for none. Raises: ConfigError naming the
    values when no slot fits, or when the pages cannot hold one chunk and a page (section 5).
    """
    if max_running < 1:
        raise ConfigError(f"--max-running-requests {max_running}: must be at least 1")
    num_slots = max_running + layout.num_warm + 1
    slots_bytes = num_slots * layout.slot_bytes
    if slots_bytes >= budget_bytes:
        raise ConfigError(
            f"--kv-cache-memory {budget_bytes} bytes do not hold the windows of "
            f"--max-running-requests {max_running} and {layout.num_warm} warm (+1) slots: "
            f"{slots_bytes} bytes, {layout.slot_bytes} each"
        )
    num_pages = _count_pages(layout, budget_bytes - slots_bytes, max_running, context_len)
    if cap_tokens >= 0:
        num_pages = min(num_pages, cap_tokens // layout.page_size + 1)
    usable_tokens = (num_pages - 1) * layout.page_size
    need_tokens = min(chunk_tokens, context_len) + layout.page_size
    if usable_tokens < need_tokens:
        raise ConfigError(
            f"{max(usable_tokens, 0)} tokens of KV pages are less than {need_tokens} = min("
            f"--chunked-prefill-size {chunk_tokens}, context {context_len}) + "
            f"--page-size {layout.page_size} "
            f"(--kv-cache-memory {budget_bytes} bytes, windows {slots_bytes} bytes, "
            f"--max-total-tokens {cap_tokens}, page {layout.page_bytes} bytes)"
        )
    return Capacity(num_pages, num_slots)


def _count_pages(layout: KVLayout, budget_bytes: int, max_running: int, context_len: int) -> int:
    """Pages cost nothing without global layers: as many as all requests at their longest use."""
    if layout.page_bytes:
        return budget_bytes // layout.page_bytes
    return max_running * -(-context_len // layout.page_size) + 1


def align_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
