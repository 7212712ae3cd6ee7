"""DSpark by hand: drafts, what is accepted, and how sure it is, against expected outputs."""

from __future__ import annotations

import pytest
import torch

from test.v41 import NAMES, SLOT, Run, golden, loaded, manifest
from treadle.srt.models.dspark import Anchor


def best(_place: int, logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


def verify(run: Run, drafts: list[int]) -> tuple[int, int]:
    """How many drafts the target agrees with, and its own next token."""
    run.ids.extend(drafts)
    logits = run.run(len(run.ids), wanted=len(drafts) + 1)
    own = logits.argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and own[accepted] == drafts[accepted]:
        accepted += 1
    rejected = len(drafts) - accepted
    if rejected:
        del run.ids[-rejected:]
    run.next = run.computed = len(run.ids)
    run.slots.recent[SLOT] = run.ids[: -1 - run.slots.recent.shape[1] : -1]  # accepted ids only
    return accepted, own[accepted]


@pytest.mark.parametrize(
    ("name", "case"), [(n, c) for n in NAMES for c in manifest(n) if c.startswith("dspark")]
)
def test_drafts_and_output_agree(name, case):
    """Output is compared up to ties; drafts where the anchors are the same."""
    data, parts = golden(name, case), loaded(name, False)
    run = Run(parts, ring_rows=140)
    run.admit(data["ids"].tolist())
    with torch.inference_mode():
        first = run.run(len(run.ids))
        parts.draft.keep_context(run.taps, [(SLOT, 0, len(run.ids))], run.pools)
        out, same, total = [int(first[-1].argmax())], 0, 0
        for step in range(len(data["anchors"])):
            position = len(run.ids)
            drafts = parts.draft.draft([Anchor(SLOT, position, out[-1])], run.pools, best, 5)
            ids = drafts.ids[0].tolist()
            if out[-1] == int(data["anchors"][step]):
                same += ids[0] == int(data["drafts"][step][0])
                total += 1
                off = (drafts.sure[0] - data["confidence"][step]).abs()
                assert off[0] < 0.1
            run.ids.append(out[-1])
            accepted, token = verify(run, ids)
            rows = run.taps[: accepted + 1]
            parts.draft.keep_context(rows, [(SLOT, position, accepted + 1)], run.pools)
            out.extend([*ids[:accepted], token])
    expected = data["output"].tolist()
    assert out[: len(expected)] == expected[: len(out)]
    assert total >= 3 and same >= total - 1


def test_context_that_a_replay_left_out_is_not_read():
    """B23: below the first row with taps there is nothing, and nothing is made up."""
    parts = loaded("v41-nano", False)
    run = Run(parts)
    run.admit(golden("v41-nano", "dspark_text")["ids"].tolist())
    with torch.inference_mode():
        run.run(200)
        parts.draft.keep_context(run.taps[150:], [(SLOT, 150, 50)], run.pools)
        drafts = parts.draft.draft([Anchor(SLOT, 200, 5)], run.pools, best, 5)
    assert drafts.ids.shape == (1, 5) and drafts.logits.isfinite().all()
