"""Drafter: guesses at the next tokens of each request, made by a draft head after a step.

    forward   the backbone, as without; the taps of its rows are kept until `keep`
    keep      rows that stay, prompt rows and accepted drafts, go to the draft head's context
    propose   a block of drafts behind each request's newest token

What is not accepted never enters the context (rule B24). The taps of replayed rows do, as they are
what refills it after a hit (B23). A draft is a guess: its worth shows in how many are accepted, the
output is the same with any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..layers.batch import ForwardBatch
from ..layers.latent_pools import LatentPools
from ..models.deepseek_v41 import DeepseekV41
from ..models.dspark import Anchor, Dspark
from .sampler import draw_draft
from .state import Drafted, SamplerSlot

SURE = 0.7  # probability of a draft to be accepted; 0.5 and 0.8 give fewer accepted drafts


@dataclass(frozen=True, slots=True)
class _Taps:
    """Rows [T, taps*D] that entered the last layer, and its runs (`LayerRows.window_runs`)."""

    rows: Tensor
    runs: Tensor


@dataclass(slots=True, eq=False)
class Drafter:
    """`count`: drafts per request and step."""

    backbone: DeepseekV41
    head: Dspark
    pools: LatentPools
    count: int
    _taps: _Taps | None = field(init=False, default=None)

    def forward(self, batch: ForwardBatch) -> Tensor:
        """Normed hidden rows [n, D] that leave the last layer."""
        hidden, taps = self.backbone.run(batch, self.pools)
        self._taps = _Taps(taps, batch.layers[-1].window_runs)
        return hidden

    def keep(self, ends: Mapping[int, int]) -> None:
        """Context of the rows of the last `forward` below the end of their slot. Writes rings."""
        assert self._taps is not None
        taps, self._taps = self._taps, None
        runs, kept = [], []
        for slot, first, count, _, _, position, _ in taps.runs.tolist():
            stay = min(count, ends[slot] - position)
            if stay > 0:
                runs.append((slot, position, stay))
                kept.append(taps.rows[first : first + stay])
        if runs:
            self.head.keep_context(torch.cat(kept), runs, self.pools)

    def propose(self, anchors: Sequence[Anchor], slots: Sequence[SamplerSlot]) -> None:
        """Drafts behind each anchor, into its slot."""
        if not anchors:
            return

        def pick(place: int, logits: Tensor) -> Tensor:
            rows = zip(logits, slots, strict=True)
            return torch.tensor([draw_draft(row, slot, place) for row, slot in rows])

        drafts = self.head.draft(anchors, self.pools, pick, self.count)
        for index, slot in enumerate(slots):
            logits = None if slot.params.is_greedy else drafts.logits[index].clone()
            num_sure = int((drafts.sure[index] >= SURE).cumprod(0).sum())
            ids = tuple(drafts.ids[index].tolist())
            slot.drafted = Drafted(slot.num_output, ids, logits, num_sure)
