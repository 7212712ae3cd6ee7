"""How far two next-token distributions are apart, and the summary over texts.

KL is that of the exact distribution against the approximate one, in nats, in fp64. The mean over
the rows of a text is one value; standard errors are over texts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Drift:
    """One text after one hit. `dnll` is the change of the loss of the text's own next tokens, per
    token; None where it is not known. `max_diff` is the largest difference of two logits (of two
    log-probabilities in the served check). Replayed rows: of the lowest layer, and mean over
    layers. `rounding_kl` holds the KL of float32 weights, cold, against this engine cold and after
    the hit: what packed weights change by themselves, and both together. `listed_mass`: mean
    probability of the ids that the served check sees of a row, which says how tight its bound is.
    """

    text: str
    kind: str
    hit: int
    slope: int
    num_rows: int
    mean_kl: float
    worst_kl: float
    top1: float
    dnll: float | None
    max_diff: float
    lowest_rows: int
    mean_rows: float | None
    rounding_kl: tuple[float, float] | None = None
    listed_mass: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Over the texts of one hit length and slope."""

    hit: int
    slope: int
    num_texts: int
    mean_kl: float
    kl_error: float
    worst_text: str
    worst_kl: float
    top1: float
    dnll: float | None
    max_diff: float
    lowest_rows: float
    mean_rows: float | None
    rounding_kl: tuple[float, float] | None
    listed_mass: float | None


def row_kl(exact: Tensor, other: Tensor) -> list[float]:
    """Shapes: logits [n, V]; KL of each row."""
    values = []
    for a, b in zip(exact, other, strict=True):
        p, q = torch.log_softmax(a.double(), 0), torch.log_softmax(b.double(), 0)
        values.append(float((p.exp() * (p - q)).sum()))
    return values


def nll(logits: Tensor, tokens: Sequence[int]) -> float:
    """Mean loss of `tokens` [n], each the next after its row of logits [n, V]."""
    rows = torch.log_softmax(logits.double(), 1)
    return -float(rows[torch.arange(len(tokens)), torch.tensor(tokens)].mean())


def binned_kl(exact: dict[int, float], other: dict[int, float]) -> float:
    """KL between two lists of top log-probabilities by id, with all ids that are not in both lists
    taken as one. Never more than the KL of the whole distributions, and near it when the lists
    hold most of the mass.
    """
    common = exact.keys() & other.keys()
    total = sum(math.exp(exact[i]) * (exact[i] - other[i]) for i in common)
    p = 1.0 - sum(math.exp(exact[i]) for i in common)
    q = 1.0 - sum(math.exp(other[i]) for i in common)
    smallest = 1e-9  # what fp32 sums of 20 probabilities leave of a rest
    if p > smallest and q > smallest:
        total += p * math.log(p / q)
    return total


def summarise(drifts: Sequence[Drift]) -> list[Summary]:
    keys = sorted({(d.hit, d.slope) for d in drifts})
    return [_summary([d for d in drifts if (d.hit, d.slope) == key]) for key in keys]


def _summary(group: list[Drift]) -> Summary:
    kls = [d.mean_kl for d in group]
    worst = max(group, key=lambda d: d.mean_kl)
    losses = [d.dnll for d in group if d.dnll is not None]
    masses = [d.listed_mass for d in group if d.listed_mass is not None]
    means = [d.mean_rows for d in group if d.mean_rows is not None]
    return Summary(
        hit=group[0].hit,
        slope=group[0].slope,
        num_texts=len(group),
        mean_kl=statistics.mean(kls),
        kl_error=statistics.stdev(kls) / math.sqrt(len(kls)) if len(kls) > 1 else 0.0,
        worst_text=worst.text,
        worst_kl=worst.mean_kl,
        top1=statistics.mean(d.top1 for d in group),
        dnll=statistics.mean(losses) if losses else None,
        max_diff=max(d.max_diff for d in group),
        lowest_rows=statistics.mean(d.lowest_rows for d in group),
        mean_rows=statistics.mean(means) if means else None,
        rounding_kl=_mean_pair([d.rounding_kl for d in group if d.rounding_kl]),
        listed_mass=statistics.mean(masses) if masses else None,
    )


def _mean_pair(pairs: list[tuple[float, float]]) -> tuple[float, float] | None:
    if not pairs:
        return None
    return statistics.mean(a for a, _ in pairs), statistics.mean(b for _, b in pairs)


def table(title: str, summaries: Sequence[Summary]) -> str:
    out = [
        f"### {title}",
        "",
        "| hit | slope | texts | mean KL (SE) | worst text | top-1 % | dNLL | rows run"
        " | float32 against cold / after the hit | listed mass |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in summaries:
        dnll = "" if s.dnll is None else f"{s.dnll:+.5f}"
        rounding = "" if s.rounding_kl is None else " / ".join(f"{x:.2e}" for x in s.rounding_kl)
        mass = "" if s.listed_mass is None else f"{s.listed_mass:.3f}"
        mean = "" if s.mean_rows is None else f" / {s.mean_rows:.0f}"
        out.append(
            f"| {s.hit} | {s.slope} | {s.num_texts} | {s.mean_kl:.2e} ({s.kl_error:.1e}) |"
            f" {s.worst_kl:.2e} {s.worst_text} | {100 * s.top1:.1f} | {dnll} |"
            f" {s.lowest_rows:.0f}{mean} | {rounding} | {mass} |"
        )
    return "\n".join(out)
