"""An approximation of what prefixes replicas have cached: hashes of blocks of sent prompts.

    text    [ block 0 ][ block 1 ][ block 2 ][ rest, not kept ]
    chain    h0 = H(b0)  h1 = H(h0, b1)  h2 = H(h1, b2)        chain -> replicas, when last sent

The router sees no evictions, so entries age out (`ttl_s`), and the whole is bounded in bytes of
text, least recently sent out first. A match is a hint and never overrides the load bound.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator

BLOCK_BYTES = 256


class PrefixIndex:
    def __init__(self, capacity_bytes: int, ttl_s: float) -> None:
        self._capacity = max(1, capacity_bytes // BLOCK_BYTES)
        self._ttl_s = ttl_s
        self._blocks: OrderedDict[bytes, dict[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, text: bytes, replicas: Iterable[str], now: float) -> dict[str, int]:
        """By replica, how many leading bytes of `text` it was sent before."""
        alive = dict.fromkeys(replicas, 0)
        going = set(alive)
        for count, chain in enumerate(_chains(text), start=1):
            seen = self._blocks.get(chain)
            if seen is None:
                break
            going = {name for name in going if now - seen.get(name, now - 2e9) <= self._ttl_s}
            if not going:
                break
            alive |= dict.fromkeys(going, count * BLOCK_BYTES)
        return alive

    def insert(self, text: bytes, replica: str, now: float) -> None:
        for chain in _chains(text):
            self._blocks.setdefault(chain, {})[replica] = now
            self._blocks.move_to_end(chain)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        self._expire(now)

    def _expire(self, now: float) -> None:
        while self._blocks:
            oldest = next(iter(self._blocks.values()))
            if now - max(oldest.values()) <= self._ttl_s:
                return
            self._blocks.popitem(last=False)


def _chains(text: bytes) -> Iterator[bytes]:
    chain = b""
    for begin in range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES):
        block = text[begin : begin + BLOCK_BYTES]
        chain = hashlib.blake2b(chain + block, digest_size=12).digest()
        yield chain
