"""Logits -> tokens and logprobs, on the CPU.

A row's draw depends on its logits, its parameters, its seed and the index of the output token, and
on nothing else: not on the batch, not on a preemption in between. The order is: bias and penalties,
a grammar's mask, temperature, top-k and top-p judged on the same distribution without renormalising
between, min-p relative to the best token, draw. Logprobs are of the raw model distribution, or of
the processed one: after bias, penalties, mask and temperature (greedy: without), before any filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..messages import SamplingParams, TokenLogprob
from .scoring import read_rows
from .state import Bool, SamplerSlot

GREEDY_BELOW = 1e-6  # temperature
CANDIDATES = 1024  # best tokens looked at before a full sort of the vocabulary is paid for
MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampled:
    token_ids: list[int]
    logprobs: list[TokenLogprob | None]
    bad: list[int]  # indexes of rows whose logits are not finite


def sample(logits: Tensor, slots: Sequence[SamplerSlot], *, is_processed: bool = False) -> Sampled:
    """Shapes: logits [n, V] float. Updates the slots' output counts. `is_processed`: which
    distribution logprobs are of.
    """
    best_logit, best_id = logits.max(dim=1)
    finite = torch.isfinite(best_logit).tolist()
    token_ids = best_id.tolist()
    logprobs: list[TokenLogprob | None] = []
    for i, slot in enumerate(slots):
        if finite[i] and not _is_plain_greedy(slot):
            token_ids[i] = _sample_row(logits[i], slot)
        if slot.top_logprobs is None:
            logprobs.append(None)
        else:
            row = _processed(logits[i], slot) if is_processed else logits[i]
            logprobs.append(_logprob(row, token_ids[i], slot))
        slot.took(token_ids[i])
    return Sampled(token_ids, logprobs, [i for i, ok in enumerate(finite) if not ok])


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) from a seed and an output index: splitmix64 (Steele et al. 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xD1342543DE82EF95) & MASK64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & MASK64
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def _is_plain_greedy(slot: SamplerSlot) -> bool:
    p = slot.params
    return (
        p.temperature < GREEDY_BELOW
        and not p.has_penalties
        and not p.logit_bias
        and slot.num_output >= p.min_new_tokens
        and slot.allowed is None
    )


def _sample_row(logits: Tensor, slot: SamplerSlot) -> int:
    params = slot.params
    row = _adjusted(logits, slot)
    if params.temperature < GREEDY_BELOW:
        return int(row.argmax())
    u = uniform(params.seed or 0, slot.num_output)
    return _draw(row / params.temperature, params, u)


def _adjusted(logits: Tensor, slot: SamplerSlot) -> Tensor:
    """A copy of `logits` [V] with bias, penalties and the ban of early stops applied."""
    params, row = slot.params, logits.clone()
    if params.has_penalties:
        _penalise(row, slot)
    if params.logit_bias:
        index = torch.tensor([i for i, _ in params.logit_bias])
        row[index] += torch.tensor([b for _, b in params.logit_bias], dtype=row.dtype)
    if slot.num_output < params.min_new_tokens and params.stop_token_ids:
        row[torch.tensor(params.stop_token_ids)] = -math.inf
    return row if slot.allowed is None else _masked(row, logits, slot.allowed)


def _masked(row: Tensor, logits: Tensor, allowed: Bool) -> Tensor:
    """`row` with what the grammar forbids at -inf; ids beyond `allowed` are forbidden too. A bias
    or the ban of stops that leaves nothing gives way: an answer outside the grammar is none."""
    keep = torch.zeros(len(row), dtype=torch.bool)
    keep[: len(allowed)] = torch.from_numpy(allowed[: len(row)])
    for scores in (row, logits):
        masked = scores.masked_fill(~keep, -math.inf)
        if bool(masked.max() > -math.inf):
            return masked
    return torch.where(keep, 0.0, -math.inf)


def _penalise(row: Tensor, slot: SamplerSlot) -> None:
    """Repetition covers prompt and output (the Hugging Face meaning); the others output only."""
    params = slot.params
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(slot.prompt | slot.output.keys()), dtype=torch.int64)
        x = row[seen]
        r = params.repetition_penalty
        row[seen] = torch.where(x > 0, x / r, x * r)
    if slot.output and (params.frequency_penalty or params.presence_penalty):
        index = torch.tensor(list(slot.output.keys()))
        count = torch.tensor(list(slot.output.values()), dtype=row.dtype)
        row[index] -= params.frequency_penalty * count + params.presence_penalty


def _draw(row: Tensor, params: SamplingParams, u: float) -> int:
    if params.top_k == -1 and params.top_p >= 1.0 and params.min_p == 0.0:
        return _pick(torch.softmax(row.double(), dim=0), u)
    size = row.shape[0]
    limit = size if params.top_k == -1 else min(params.top_k, size)
    log_total = torch.logsumexp(row.double(), dim=0)
    for count in (min(limit, CANDIDATES), limit):
        values, token_ids = torch.topk(row, count)
        kept = _filtered((values.double() - log_total).exp(), params)
        if len(kept) < count or count == limit:
            break
    return int(token_ids[_pick(kept, u)])


def _filtered(probs: Tensor, params: SamplingParams) -> Tensor:
    """The leading part of `probs` (descending) that top-p and min-p keep; never empty."""
    before = probs.cumsum(0) - probs
    keep = (before < params.top_p) & (probs >= params.min_p * probs[0])
    return probs[: max(1, int(keep.sum()))]


def _pick(probs: Tensor, u: float) -> int:
    """Inverse of the cumulative distribution of unnormalised `probs` at `u` in [0, 1)."""
    cumulative = probs.cumsum(0)
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(index, len(probs) - 1)


def _processed(logits: Tensor, slot: SamplerSlot) -> Tensor:
    row, temperature = _adjusted(logits, slot), slot.params.temperature
    return row if temperature < GREEDY_BELOW else row / temperature


def _logprob(logits: Tensor, token_id: int, slot: SamplerSlot) -> TokenLogprob:
    read = read_rows(logits[None], torch.tensor([token_id]), slot.wanted)
    return TokenLogprob(
        float(read.logprobs),
        tuple(read.top_ids[0].tolist()),
        tuple(read.top_logprobs[0].tolist()),
        tuple(read.chosen[0].tolist()),
    )
