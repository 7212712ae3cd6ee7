"""EvictionOrder: rule T21's total order, by policy, with expired nodes first."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.eviction import POLICIES, EvictionOrder
from treadle.srt.cache.node import OUTPUT, PROMPT, RadixNode
from treadle.srt.config import EVICTION_POLICIES
from treadle.srt.errors import ConfigError

ROOT = RadixNode(0, b"", array("i"), None, ns=())


def leaf(number, **fields):
    return RadixNode(number, b"", array("i", [number]), ROOT, **fields)


def drain(order, nodes, tick=0):
    for node in nodes:
        order.push(node)
    went = []
    while (node := order.first(tick)) is not None:
        went.append(node.id)
        node.parent = None
    return went


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("lru", [2, 3, 1, 4]), ("lfu", [3, 1, 4, 2]), ("slru", [3, 1, 2, 4]), ("fifo", [4, 3, 2, 1])],
)
def test_policies_order_by_their_key_then_tick(policy, expected):
    nodes = [
        leaf(1, tick=7, hits=1, born=4),
        leaf(2, tick=2, hits=5, born=3),
        leaf(3, tick=5, hits=1, born=2),
        leaf(4, tick=9, hits=2, born=1),
    ]
    assert drain(EvictionOrder(policy), nodes) == expected


def test_every_policy_of_the_flag_is_there():
    assert tuple(POLICIES) == EVICTION_POLICIES


def test_equal_keys_go_by_node_id():
    """All ranks must evict the same pages."""
    assert drain(EvictionOrder("lru"), [leaf(n, tick=3) for n in (9, 4, 6)]) == [4, 6, 9]


def test_outputs_go_before_prompts_and_expired_nodes_before_both():
    """T21, T23: priority is bounded in time."""
    nodes = [
        leaf(1, priority=OUTPUT, tick=8),
        leaf(2, priority=PROMPT, tick=1, expires_at=20),
        leaf(3, priority=PROMPT, tick=5, expires_at=10),
        leaf(4, priority=PROMPT, tick=2, expires_at=10),
    ]
    assert drain(EvictionOrder("lru"), nodes, tick=9) == [1, 2, 4, 3]
    for node in nodes:
        node.parent = ROOT
    assert drain(EvictionOrder("lru"), nodes, tick=10) == [4, 3, 1, 2]


def test_pinned_nodes_and_inner_nodes_are_passed_over():
    order = EvictionOrder("lru")
    pinned, inner, free = leaf(1), leaf(2), leaf(3)
    for node in (pinned, inner, free):
        order.push(node)
    pinned.pins = 1
    inner.children[b"x"] = free
    assert order.first(0) is free


def test_dead_entries_are_dropped_as_the_heap_grows():
    order = EvictionOrder("lru")
    node = leaf(1, expires_at=1 << 40)
    for tick in range(5000):
        node.tick = tick
        order.push(node)
    assert len(order._order) < 600 and len(order._expiry) < 600
    assert order.valid() == [node]


def test_unknown_policy_ends_the_launch():
    with pytest.raises(ConfigError, match="--radix-eviction-policy 'mru'"):
        EvictionOrder("mru")
