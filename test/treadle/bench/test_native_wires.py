"""Bodies that are sent and events that are read: /generate and /completion."""

from __future__ import annotations

from array import array

import pytest

from treadle.bench.asks import Ask, Event, Options
from treadle.bench.wires import WIRES

IDS = array("i", [5, 6])


def test_llama_refuses_what_it_would_ignore():
    for options in (Options("m", top_logprobs=1), Options("m", lora="a")):
        with pytest.raises(ValueError, match=r"llama\.cpp"):
            WIRES["llama.cpp"].body(Ask(IDS, 1), options)
    sampled = WIRES["llama.cpp"].body(Ask(IDS, 1), Options("m", temperature=0.5))
    assert sampled["temperature"] == 0.5 and "samplers" not in sampled


def test_tokens_that_come_together_share_the_gap_before_them():
    meta = {"prompt_tokens": 8, "cached_tokens": 6, "replayed_tokens": 2}
    events = [
        Event(at_s, {"text": "", "meta_info": {**meta, "completion_tokens": n}})
        for at_s, n in ((1.0, 1), (1.5, 1), (2.0, 3), (3.0, 5))
    ]
    said = WIRES["sglang"].read(events)
    assert said.arrivals == ((1.0, 1), (2.0, 2), (3.0, 2))
    assert said.rows == 8 - 6 + 2
