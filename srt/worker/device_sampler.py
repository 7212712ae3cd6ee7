"""Logits -> tokens for all rows of a step at once, on the device, without a look at a value.

The rules are those of `sampler.py`, which is the reference: same order, same numbers to draw by, so
a request's draws do not depend on its neighbours. What the host knows of rows (parameters, how many
tokens there are, masks) is laid out in `Draws`; what only the device knows is here: how often a
request has output each id, for penalties. Those counts take memory from the first request on that
asks for penalties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .draws import Draws
from .sampler import CANDIDATES
from .transfer import upload


@dataclass(frozen=True, slots=True)
class Tokens:
    """Shapes: n rows. `ids` int64 [n], `finite` bool [n]: whether a row's logits can be used."""

    ids: Tensor
    finite: Tensor


@dataclass(slots=True, eq=False)
class DeviceSampler:
    device: torch.device
    num_slots: int
    vocab_size: int
    _seen: Tensor | None = field(init=False, default=None)  # bool [S, V]: in prompt or output
    _output: Tensor | None = field(init=False, default=None)  # float32 [S, V]: times output

    def begin(self, slot: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        """A request with penalties enters a slot with these ids."""
        seen, counts = self._counts()
        seen[slot] = False
        counts[slot] = 0.0
        history = np.array([*prompt, *output], dtype=np.int64)
        (ids,) = upload([history], self.device)
        seen[slot, ids] = True
        self.took(np.full(len(output), slot), ids[len(prompt) :])

    def took(self, slots: np.typing.NDArray[np.int64], ids: Tensor) -> None:
        """These slots, all of requests with penalties, have output these ids."""
        if not len(slots):
            return
        seen, counts = self._counts()
        (rows,) = upload([slots], self.device)
        seen[rows, ids] = True
        counts.index_put_((rows, ids), counts.new_ones(len(slots)), accumulate=True)

    def adjusted(self, logits: Tensor, draws: Draws) -> Tensor:
        """Float32 logits [n, V] after penalties, bias, the ban of early stops and masks."""
        logits = logits.float()
        if not draws.is_adjusting:
            return logits
        row = logits.clone()
        if draws.penalised.size:
            self._penalise(row, draws)
        if draws.bias_rows.size:
            where = upload([draws.bias_rows, draws.bias_ids, draws.bias_values], self.device)
            row.index_put_((where[0], where[1]), where[2].float(), accumulate=True)
        if draws.ban_rows.size:
            rows, ids = upload([draws.ban_rows, draws.ban_ids], self.device)
            row[rows, ids] = -math.inf
        return self._masked(row, logits, draws) if draws.masked.size else row

    def sample(self, logits: Tensor, draws: Draws) -> Tokens:
        """Shapes: logits [n, V]. Does not update the counts: see `took`."""
        best, ids = logits.max(dim=1)
        finite = torch.isfinite(best)
        if draws.is_plain:
            return Tokens(ids, finite)
        row = self.adjusted(logits, draws)
        chosen = row.argmax(dim=1)
        for rows, filters in ((draws.free, False), (draws.filtered, True)):
            if rows.size:
                index, *numbers = upload([rows, *draws.numbers(rows)], self.device)
                part = row[index] / numbers[0].float()[:, None]
                drawn = (
                    self._filtered(part, numbers, draws, rows) if filters else _free(part, numbers)
                )
                chosen[index] = drawn
        return Tokens(torch.where(finite, chosen, ids), finite)

    def _filtered(
        self, rows: Tensor, numbers: list[Tensor], draws: Draws, which: np.typing.NDArray[np.int64]
    ) -> Tensor:
        """Among the best ids that top-k, top-p and min-p leave."""
        _, u, top_k, top_p, min_p = numbers
        most = int(draws.top_k[which].max())
        total = torch.logsumexp(rows.double(), dim=1, keepdim=True)
        if most <= CANDIDATES:
            values, ids = torch.topk(rows, min(most, rows.shape[1]), dim=1)
        else:
            values, ids = torch.sort(rows, dim=1, descending=True)
        probs = (values.double() - total).exp()
        before = probs.cumsum(1) - probs
        rank = torch.arange(probs.shape[1], device=rows.device)
        keep = (before < top_p[:, None]) & (probs >= min_p[:, None] * probs[:, :1])
        keep &= rank < top_k[:, None]
        keep[:, 0] = True
        place = _pick(torch.where(keep, probs, 0.0), u)
        last = keep.sum(dim=1, keepdim=True) - 1
        return ids.gather(1, torch.minimum(place, last))[:, 0]

    def _penalise(self, row: Tensor, draws: Draws) -> None:
        seen, counts = self._counts()
        index, slots, *numbers = upload(
            [draws.penalised, draws.slots[draws.penalised], *draws.penalties()], self.device
        )
        repetition, frequency, presence = (x.float()[:, None] for x in numbers)
        part, times = row[index], counts[slots]
        scaled = torch.where(part > 0, part / repetition, part * repetition)
        part = torch.where(seen[slots], scaled, part)
        row[index] = part - frequency * times - presence * (times > 0)

    def _masked(self, row: Tensor, logits: Tensor, draws: Draws) -> Tensor:
        """As `sampler._masked`: a bias or ban that leaves nothing gives way to the grammar."""
        index, words = upload([draws.masked, draws.words], self.device)
        bit = torch.arange(64, device=row.device)
        allowed = ((words[:, :, None] >> bit) & 1).bool().flatten(1)
        keep = torch.zeros(len(index), row.shape[1], dtype=torch.bool, device=row.device)
        size = min(allowed.shape[1], row.shape[1])
        keep[:, :size] = allowed[:, :size]
        result = torch.where(keep, 0.0, -math.inf)
        for scores in (logits, row):
            masked = scores[index].masked_fill(~keep, -math.inf)
            is_left = (masked > -math.inf).any(dim=1, keepdim=True)
            result = torch.where(is_left, masked, result)
        row[index] = result
        return row

    def _counts(self) -> tuple[Tensor, Tensor]:
        if self._seen is None or self._output is None:
            shape = (self.num_slots, self.vocab_size)
            self._seen = torch.zeros(shape, dtype=torch.bool, device=self.device)
            self._output = torch.zeros(shape, device=self.device)
        return self._seen, self._output


def _free(rows: Tensor, numbers: list[Tensor]) -> Tensor:
    """Among all ids, in their order."""
    return _pick(torch.softmax(rows.double(), dim=1), numbers[1])[:, 0]


def _pick(probs: Tensor, u: Tensor) -> Tensor:
    """Per row the inverse of the cumulative distribution of unnormalised `probs` at u: [n, 1]."""
    cumulative = probs.cumsum(1)
    at = (u[:, None] * cumulative[:, -1:]).contiguous()
    return torch.searchsorted(cumulative, at, right=True).clamp_(max=probs.shape[1] - 1)
