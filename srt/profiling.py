"""What a profile of the workers is to hold, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Files are `folder/name-rank<r>.trace.json`. `num_steps` 0: until it is stopped, or
    has become too long."""

    folder: str
    name: str
    num_steps: int = 0
    with_stack: bool = False
    record_shapes: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """A message to the workers, through the scheduler. `options` None: stop."""

    token: int
    options: ProfileOptions | None
