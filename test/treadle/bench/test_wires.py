"""What holds for all backends."""

from __future__ import annotations

from array import array

import pytest

from treadle.bench.asks import Ask, Message, Options
from treadle.bench.wires import CHAT_OF, WIRES

IDS = array("i", [5, 6])


@pytest.mark.parametrize("name", list(WIRES))
def test_a_prompt_of_a_kind_that_the_route_lacks_is_refused(name: str):
    wire = WIRES[name]
    bad = IDS if wire.is_chat else (Message("user", "a"),)
    with pytest.raises(ValueError, match="messages"):
        wire.body(Ask(bad, 1), Options("m"))
    assert name in CHAT_OF or wire.is_chat or name == "sglang-embedding"


@pytest.mark.parametrize("name", list(WIRES))
def test_only_servers_that_know_the_field_are_asked_for_tiers(name: str):
    wire = WIRES[name]
    prompt = (Message("user", "a"),) if wire.is_chat else IDS
    body = wire.body(Ask(prompt, 1), Options("m", wants_tiers=True))
    assert ("return_cached_tokens_details" in body) == name.startswith("sglang-oai")
