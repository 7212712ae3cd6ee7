"""The same question asked of a running server: top log-probabilities cold and after a hit.

A cold request (`swa_replay: off`) runs the whole prompt and generates greedily; then the same
prompt is asked with each slope, which hits what the cold one published. Rows are compared while
both have the same context, up to the first different token and including its row. Of 262,144
log-probabilities a server gives 20, so the KL is that of `binned_kl`, a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.quality.drift import Drift, binned_kl
from benchmark.quality.texts import Text
from benchmark.serving.client import Json, int_list, post
from benchmark.serving.servers import Server

TOP = 20
PROMPT_TAIL = 32  # new prompt tokens after the hit


@dataclass(frozen=True, slots=True)
class Answer:
    """`tops[i]` maps ids to log-probabilities of the distribution that gave `token_ids[i]`."""

    token_ids: list[int]
    tops: list[dict[int, float]]
    cached: int
    replayed: int


def measure(
    server: Server, text: Text, tokens: Sequence[int], slopes: Sequence[int], num_new: int
) -> list[Drift]:
    """One value per slope. Raises RuntimeError when a request got no hit."""
    prompt = list(tokens)
    cold = _ask(server, prompt, num_new, {"swa_replay": "off"})
    drifts = []
    for slope in slopes:
        fields: Json = {"swa_replay": "bounded", "swa_replay_slope": slope}
        warm = _ask(server, prompt, num_new, fields)
        if not warm.cached:
            raise RuntimeError(f"{text.name}: slope {slope} got no hit")
        drifts.append(_drift(text, slope, cold, warm))
    return drifts


def _drift(text: Text, slope: int, cold: Answer, warm: Answer) -> Drift:
    pairs = list(zip(cold.token_ids, warm.token_ids, strict=True))
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    num_rows = min(same + 1, len(pairs))
    rows = list(zip(cold.tops[:num_rows], warm.tops[:num_rows], strict=True))
    kls = [binned_kl(a, b) for a, b in rows]
    diffs = [abs(a[i] - b[i]) for a, b in rows for i in a.keys() & b.keys()]
    return Drift(
        text=text.name,
        kind=text.kind,
        hit=warm.cached,
        slope=slope,
        num_rows=num_rows,
        mean_kl=sum(kls) / num_rows,
        worst_kl=max(kls),
        top1=min(same, num_rows) / num_rows,
        dnll=None,
        max_diff=max(diffs),
        lowest_rows=warm.replayed,
        mean_rows=None,
        listed_mass=sum(math.exp(x) for a, _ in rows for x in a.values()) / num_rows,
    )


def _ask(server: Server, prompt: list[int], num_new: int, fields: Json) -> Answer:
    body: Json = {
        "input_ids": prompt,
        "sampling_params": {"max_new_tokens": num_new, "temperature": 0, "ignore_eos": True},
        "return_logprob": True,
        "top_logprobs_num": TOP,
        **fields,
    }
    found = post(server.port, "/generate", body)
    meta = found["meta_info"]
    assert isinstance(meta, dict)
    tops = [{i: value for value, i, _ in row} for row in meta["output_top_logprobs"]]
    ids = int_list(found["output_ids"])
    return Answer(ids, tops, meta["cached_tokens"], meta["replayed_tokens"])
