"""The router's view of cached prefixes (rule A10)."""

from __future__ import annotations

from treadle.router.prefix_index import BLOCK_BYTES, PrefixIndex

TEXT = bytes(range(256)) * 5
assert len(TEXT) == 5 * BLOCK_BYTES


def test_a_match_is_the_common_head_in_whole_blocks():
    index = PrefixIndex(1 << 20, 100.0)
    index.insert(TEXT, "a", 0.0)
    longer = TEXT[: 3 * BLOCK_BYTES] + b"x" * 900
    index.insert(longer, "b", 0.0)
    assert index.match(TEXT, ["a", "b", "c"], 1.0) == {
        "a": 5 * BLOCK_BYTES,
        "b": 3 * BLOCK_BYTES,
        "c": 0,
    }
    assert index.match(b"x" + TEXT, ["a"], 1.0) == {"a": 0}
    assert index.match(b"", ["a"], 1.0) == {"a": 0}


def test_entries_age_out():  # A10
    index = PrefixIndex(1 << 20, 100.0)
    index.insert(TEXT, "a", 0.0)
    index.insert(TEXT, "b", 60.0)
    assert index.match(TEXT, ["a", "b"], 120.0) == {"a": 0, "b": 5 * BLOCK_BYTES}
    index.insert(b"y" * BLOCK_BYTES, "a", 200.0)
    assert len(index) == 1


def test_the_index_is_bounded():  # A3
    index = PrefixIndex(10 * BLOCK_BYTES, 100.0)
    for i in range(30):
        index.insert(bytes([i]) * BLOCK_BYTES, "a", float(i))
    assert len(index) == 10
    assert index.match(bytes([29]) * BLOCK_BYTES, ["a"], 30.0) == {"a": BLOCK_BYTES}
    assert index.match(bytes([0]) * BLOCK_BYTES, ["a"], 30.0) == {"a": 0}
