"""Share: which of a model's equal parts one rank of several holds. The rest is never read."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class Share:
    """Rank `rank` of `size`."""

    rank: int
    size: int

    def of(self, count: int, what: str) -> range:
        """The parts held of `count`, consecutive. Raises: ConfigError when they do not divide."""
        if count % self.size:
            raise ConfigError(f"--tp-size {self.size}: does not divide the model's {count} {what}")
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)


WHOLE = Share(0, 1)
