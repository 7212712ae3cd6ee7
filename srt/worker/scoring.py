"""Hidden rows -> logprobs of prompt tokens, a few rows of logits at a time.

The logprob of the token at position p + 1 is read from row p. All rows of a chunk times a large
vocabulary would be gigabytes, so the head runs on slices of at most `slice_rows` rows, of which
only numbers per row are kept. A row's numbers depend on its logits alone: not on the slice, the
chunk or the batch, and sampled tokens are read the same way, so both agree to the bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..messages import RowSpan, StepPlan
from ..scores import PromptScores

# Logits held at once; as float32 and twice as float64 they are 160 MiB.
SLICE_LOGITS = 8 << 20
MAX_SLICE_ROWS = 128  # more gains nothing: the head's weights are read once per slice


@dataclass(frozen=True, slots=True)
class Wanted:
    """Beside its token: how many best tokens, and which further ids [c] int64, of each row."""

    top: int
    ids: Tensor


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Shapes: n rows; logprobs and ranks [n], top_ids and top_logprobs [n, k], chosen [n, c]."""

    logprobs: Tensor
    ranks: Tensor
    top_ids: Tensor
    top_logprobs: Tensor
    chosen: Tensor


def read_rows(logits: Tensor, targets: Tensor, wanted: Wanted) -> RowLogprobs:
    """Logprobs by `logits` [n, V]; targets [n] int64. All in float64."""
    logprobs = torch.log_softmax(logits.double(), dim=1)
    own = logprobs.gather(1, targets[:, None])
    best = torch.topk(logprobs, min(wanted.top, logprobs.shape[1]), dim=1)
    return RowLogprobs(
        logprobs=own[:, 0],
        ranks=(logprobs > own).sum(dim=1) + 1,
        top_ids=best.indices,
        top_logprobs=best.values,
        chosen=logprobs[:, wanted.ids],
    )


def slice_rows(vocab_size: int) -> int:
    """Rows of logits that are held at once."""
    return max(1, min(MAX_SLICE_ROWS, SLICE_LOGITS // vocab_size))


def score(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    targets: Sequence[int],
    wanted: Wanted,
    vocab_size: int,
) -> PromptScores:
    """Scores of `targets`, one per row of `hidden` [n, C]."""
    ids = torch.tensor(targets, dtype=torch.int64)
    return to_scores(score_rows(head, hidden, ids, wanted, vocab_size))


def score_rows(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    targets: Tensor,
    wanted: Wanted,
    vocab_size: int,
) -> RowLogprobs:
    """The same where `hidden` is; targets int64 [n] is there too."""
    size = slice_rows(vocab_size)
    parts = [
        read_rows(head(hidden[i : i + size]), targets[i : i + size], wanted)
        for i in range(0, len(targets), size)
    ]
    return RowLogprobs(
        logprobs=torch.cat([x.logprobs for x in parts]),
        ranks=torch.cat([x.ranks for x in parts]),
        top_ids=torch.cat([x.top_ids for x in parts]),
        top_logprobs=torch.cat([x.top_logprobs for x in parts]),
        chosen=torch.cat([x.chosen for x in parts]),
    )


def to_scores(rows: RowLogprobs) -> PromptScores:
    """`rows` are on the host."""
    return PromptScores(
        logprobs=_numbers(rows.logprobs),
        ranks=_ids(rows.ranks),
        top_ids=_ids(rows.top_ids),
        top_logprobs=_numbers(rows.top_logprobs),
        chosen=_numbers(rows.chosen),
    )


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """Where in the rows that leave the last layer each wanted row is. `mapping.py` lets a span's
    rows leave from the first scored one on, or only its sampled one:

        span 0 (scored 2 rows)   span 1 (decode)   span 2 (no last row, not scored)
        | scored scored sampled |     sampled     |
    """

    sampled: npt.NDArray[np.int64]  # [n], in span order
    scored: tuple[int, ...]  # first row of each entry of `StepPlan.scored`

    @classmethod
    def of(cls, plan: StepPlan) -> HiddenRows:
        """For plans that score; without, all rows are sampled ones in order."""
        firsts = {scored.span: scored.first for scored in plan.scored}
        sampled: list[int] = []
        scored: list[int] = []
        row = 0
        for index, span in enumerate(plan.spans()):
            first = firsts.get(index)
            if first is not None:
                scored.append(row)
            row += span.end - _first_leaving(span, first)
            sampled.extend(range(row - span.sample, row))
        return cls(np.array(sampled, dtype=np.int64), tuple(scored))


def _first_leaving(span: RowSpan, first_scored: int | None) -> int:
    if first_scored is not None:
        return first_scored
    return span.end - span.sample


def _numbers(values: Tensor) -> array[float]:
    return array("d", values.reshape(-1).numpy().tobytes())


def _ids(values: Tensor) -> array[int]:
    return array("i", values.reshape(-1).to(torch.int32).numpy().tobytes())
