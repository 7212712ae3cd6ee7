"""Logits -> tokens and logprobs, on the CPU.

A row's draw depends on its logits, its parameters, its seed and the index of the output token, and
on nothing else: not on the batch, not on a preemption in between. With drafts it depends on the
draft of its place too; how often each token comes does not (`verify.py`). The order is: bias and
penalties, a grammar's mask, temperature, top-k and top-p judged on the same distribution without
renormalising between, min-p relative to the best token, draw. Logprobs are of the raw model
distribution, or of the processed one: after bias, penalties, mask and temperature (greedy:
without), before any filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..messages import SamplingParams, TokenLogprob
from .scoring import read_rows
from .state import Bool, SamplerSlot
from .verify import DRAFT_STREAM, accept_or_draw, pick, uniform

CANDIDATES = 1024  # best tokens looked at before a full sort of the vocabulary is paid for


@dataclass(slots=True)
class Sampled:
    """`counts`: tokens of each span; `bad`: spans whose first row is not finite."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob | None] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


def sample(
    logits: Tensor,
    slots: Sequence[SamplerSlot],
    fed: Sequence[Sequence[int]] | None = None,
    *,
    is_processed: bool = False,
) -> Sampled:
    """Shapes: logits [n, V] float, of one span per slot: a row, and one more for each draft in
    `fed`. A span gives tokens up to the first that is not the draft which its next row was run for;
    a row that is not finite gives none, unless it is the first. Updates the slots. `is_processed`:
    which distribution logprobs are of.
    """
    best_logit, best_id = logits.max(dim=1)
    finite = torch.isfinite(best_logit).tolist()
    best = best_id.tolist()
    out = Sampled()
    row = 0
    for index, slot in enumerate(slots):
        drafts = fed[index] if fed is not None else ()
        count = 0
        if not finite[row]:
            out.bad.append(index)
        while count <= len(drafts) and (finite[row + count] or not count):
            at = row + count
            token = best[at]
            if finite[at] and not _is_plain_greedy(slot):
                token = _sample_row(logits[at], slot)
            out.logprobs.append(_told(logits[at], token, slot, is_processed=is_processed))
            out.token_ids.append(token)
            slot.took(token)
            count += 1
            if count > len(drafts) or token != drafts[count - 1]:
                break
        slot.masks.clear()  # of rows that no token has come to
        out.counts.append(count)
        row += len(drafts) + 1
    return out


def draw_draft(logits: Tensor, slot: SamplerSlot, place: int) -> int:
    """A guess by logits [V] of a draft head at the output `place` after the newest."""
    params = slot.params
    if params.is_greedy:
        return int(logits.argmax())
    u = uniform(params.seed or 0, slot.num_output + place, DRAFT_STREAM)
    return _draw(logits / params.temperature, params, u)


def _is_plain_greedy(slot: SamplerSlot) -> bool:
    p = slot.params
    return (
        p.is_greedy
        and not p.has_penalties
        and not p.logit_bias
        and slot.num_output >= p.min_new_tokens
        and slot.allowed is None
    )


def _sample_row(logits: Tensor, slot: SamplerSlot) -> int:
    params = slot.params
    row = _adjusted(logits, slot)
    if params.is_greedy:
        return int(row.argmax())
    row, index, drafted = row / params.temperature, slot.num_output, slot.drafted
    place = None if drafted is None else drafted.at(index)
    if drafted is None or place is None or drafted.logits is None:
        return _draw(row, params, uniform(params.seed or 0, index))
    guessed = _distribution(drafted.logits[place] / params.temperature, params)
    wanted = _distribution(row, params)
    return accept_or_draw(wanted, guessed, drafted.ids[place], params.seed or 0, index)


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
    probs, token_ids = _candidates(row, params)
    index = pick(probs, u)
    return index if token_ids is None else int(token_ids[index])


def _distribution(row: Tensor, params: SamplingParams) -> Tensor:
    """float64 [V] that sums to 1: how often `_draw` gives each id."""
    probs, token_ids = _candidates(row, params)
    if token_ids is None:
        return probs / probs.sum()
    whole = torch.zeros(len(row), dtype=torch.float64)
    whole[token_ids] = probs / probs.sum()
    return whole


def _candidates(row: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor | None]:
    """Unnormalised float64 probabilities of the ids that may be drawn; None: of all, in order."""
    if params.top_k == -1 and params.top_p >= 1.0 and params.min_p == 0.0:
        return torch.softmax(row.double(), dim=0), None
    size = row.shape[0]
    limit = size if params.top_k == -1 else min(params.top_k, size)
    log_total = torch.logsumexp(row.double(), dim=0)
    for count in (min(limit, CANDIDATES), limit):
        values, token_ids = torch.topk(row, count)
        kept = _filtered((values.double() - log_total).exp(), params)
        if len(kept) < count or count == limit:
            break
    return kept, token_ids[: len(kept)]


def _filtered(probs: Tensor, params: SamplingParams) -> Tensor:
    """The leading part of `probs` (descending) that top-p and min-p keep; never empty."""
    before = probs.cumsum(0) - probs
    keep = (before < params.top_p) & (probs >= params.min_p * probs[0])
    return probs[: max(1, int(keep.sum()))]


def _processed(logits: Tensor, slot: SamplerSlot) -> Tensor:
    row, temperature = _adjusted(logits, slot), slot.params.temperature
    return row if slot.params.is_greedy else row / temperature


def _told(
    logits: Tensor, token: int, slot: SamplerSlot, *, is_processed: bool
) -> TokenLogprob | None:
    if slot.top_logprobs is None:
        return None
    return _logprob(_processed(logits, slot) if is_processed else logits, token, slot)


def _logprob(logits: Tensor, token_id: int, slot: SamplerSlot) -> TokenLogprob:
    read = read_rows(logits[None], torch.tensor([token_id]), slot.wanted)
    return TokenLogprob(
        float(read.logprobs),
        tuple(read.top_ids[0].tolist()),
        tuple(read.top_logprobs[0].tolist()),
        tuple(read.chosen[0].tolist()),
    )
