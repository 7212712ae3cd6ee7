"""`Forks`: the states of a fork as one group, which is written to at once and joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ..client.errors import ProgramError, Unsupported

if TYPE_CHECKING:
    from .state import State

Join = Literal["gather_variable", "concate_and_append"]


class Forks:
    """The branches of a fork. As a block it joins at its end; an exception cancels the branches.

    >>> @tr.function
    ... def ideas(s):
    ...     s += "An idea:"
    ...     with s.fork(3) as forks:
    ...         forks += lambda i: f" number {i}," + tr.gen("idea", max_tokens=8)
    >>> ideas.run()["idea"]
    ['42', '42', '42']
    """

    def __init__(self, parent: State, states: Sequence[State]) -> None:
        self._parent = parent
        self.states = list(states)

    def __iadd__(self, other: Any) -> Forks:
        """One expression for all, a list with one for each, or a function of the index."""
        if isinstance(other, list):
            if len(other) != len(self.states):
                raise ProgramError(f"{len(other)} expressions for {len(self.states)} branches")
            each: Callable[[int], Any] = other.__getitem__
        elif callable(other):
            each = other
        else:
            each = _always(other)
        for index, state in enumerate(self.states):
            state.append(each(index))
        return self

    def __getitem__(self, index: int) -> State:
        return self.states[index]

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[State]:
        return iter(self.states)

    def join(self, mode: Join = "gather_variable") -> None:
        """Variables that the branches have set become lists of the parent, in the order of the
        branches; reading one waits for all of them, and raises the error of the first that
        failed. Does not block."""
        if mode != "gather_variable":
            raise Unsupported(f"join mode {mode!r}: no server joins KV of branches; gather instead")
        for state in self.states:
            state.end()
        self._parent.gather(self.states)

    def cancel(self) -> None:
        """Ends all branches, on the server too."""
        for state in self.states:
            state.cancel()

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.join()
        else:
            self.cancel()


def _always(value: Any) -> Callable[[int], Any]:
    return lambda _: value
