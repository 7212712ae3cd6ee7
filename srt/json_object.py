"""JsonObject: typed reads from the JSON of a checkpoint, with errors that name file and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from .errors import CheckpointError, ConfigError

T = TypeVar("T", bool, int, float, str)

MAX_LAYERS = 4096  # a bound on what a damaged file can make us allocate
MAX_SIZE = 1 << 31


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object with the path it came from. A null counts as absent, as in transformers."""

    source: str
    values: dict[str, object]

    def value(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Raises: CheckpointError when absent without a default, or not of the kind."""
        found = self.values.get(key)
        if found is None:
            found = default
        if kind is float and type(found) is int:
            return kind(found)
        if type(found) is not kind:
            what = "nothing" if found is None else repr(found)
            raise CheckpointError(f"{self.source}: {key}: expected {kind.__name__}, found {what}")
        return found

    def size(self, key: str, default: int | None = None, limit: int = MAX_SIZE) -> int:
        """A positive integer up to `limit`."""
        found = self.value(key, int, default)
        if not 1 <= found <= limit:
            raise CheckpointError(f"{self.source}: {key}: expected 1 to {limit}, found {found}")
        return found

    def child(self, key: str) -> JsonObject | None:
        found = self.values.get(key)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise CheckpointError(f"{self.source}: {key}: expected an object, found {found!r}")
        return JsonObject(f"{self.source}: {key}", found)

    def unsupported(self, key: str, supported: str) -> ConfigError:
        return ConfigError(
            f"{self.source}: {key} = {self.values.get(key)!r} is not supported;"
            f" supported: {supported}"
        )
