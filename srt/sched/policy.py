"""Order of admission: one function per policy, in a table.

A policy sees waiting requests in arrival order within a priority and returns the order in which
admission tries them; higher priorities stay in front. It changes nothing. Prompt-order policies
probe at most the first `PROBE_LIMIT` requests (rule T12: probing everything each step costs queue x
prompt); those behind keep arrival order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from .request import Request

PROBE_LIMIT = 128  # requests probed per step


@dataclass(frozen=True, slots=True)
class QueueView:
    """What a policy may ask: hit length of a request in tokens, without side effects."""

    probe: Callable[[Request], int]
    rng: Random


Policy = Callable[[Sequence[Request], QueueView], list[Request]]


def fcfs(waiting: Sequence[Request], view: QueueView) -> list[Request]:
    """Arrival order."""
    return list(waiting)


def shuffled(waiting: Sequence[Request], view: QueueView) -> list[Request]:
    order = list(waiting)
    view.rng.shuffle(order)
    return order


def longest_output(waiting: Sequence[Request], view: QueueView) -> list[Request]:
    """Most tokens still to sample first."""
    return sorted(waiting, key=lambda request: request.len - request.max_known)


def longest_prefix(waiting: Sequence[Request], view: QueueView) -> list[Request]:
    """Longest hit first."""
    head = sorted(waiting[:PROBE_LIMIT], key=lambda request: -view.probe(request))
    return head + list(waiting[PROBE_LIMIT:])


def depth_first(waiting: Sequence[Request], view: QueueView) -> list[Request]:
    """Depth-first through the tree, branches that more waiting requests share first.

    The waiting requests' matched prefixes are the part of the tree that matters: sorted as strings
    they lie in depth-first order, and the common length of neighbours is the depth of the fork.
    """
    head = [_Path.of(request, view.probe(request)) for request in waiting[:PROBE_LIMIT]]
    head.sort(key=lambda path: path.key)
    forks = [_common(a.key, b.key) for a, b in zip(head, head[1:], strict=False)]
    order: list[Request] = []
    _visit(head, forks, order)
    return order + list(waiting[PROBE_LIMIT:])


POLICIES: dict[str, Policy] = {
    "fcfs": fcfs,
    "lpm": longest_prefix,
    "random": shuffled,
    "dfs-weight": depth_first,
    "lof": longest_output,
}


def in_order(policy: str, waiting: Sequence[Request], view: QueueView) -> list[Request]:
    """`waiting` as `policy` wants it, more important requests first."""
    order = POLICIES[policy](waiting, view)
    if policy != "fcfs":
        order.sort(key=lambda request: -request.priority)
    return order


@dataclass(frozen=True, slots=True)
class _Path:
    key: bytes  # namespace and matched tokens, big-endian so that byte order is token order
    request: Request

    @staticmethod
    def of(request: Request, hit: int) -> _Path:
        matched = request.tokens[:hit]
        matched.byteswap()
        return _Path(repr(request.namespace).encode() + b"\0" + matched.tobytes(), request)


def _common(a: bytes, b: bytes) -> int:
    """Length of the common prefix, by bisection: comparing slices runs at memory speed."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _visit(paths: list[_Path], forks: list[int], order: list[Request]) -> None:
    """Append `paths` to `order`, splitting at the shallowest forks, heavier groups first.

    A group of equals (same matched prefix) ends the descent. `forks[i]` lies between i and i + 1.
    """
    stack = [(0, len(paths))]
    while stack:
        start, end = stack.pop()
        shallow = min(forks[start : end - 1], default=-1)
        if shallow < 0 or shallow >= len(paths[end - 1].key):
            order.extend(path.request for path in paths[start:end])
            continue
        cuts = [i + 1 for i in range(start, end - 1) if forks[i] == shallow]
        groups = list(zip([start, *cuts], [*cuts, end], strict=True))
        groups.sort(key=lambda group: group[1] - group[0])
        stack.extend(groups)
