"""Whether a checkpoint holds exactly the tensors that the model needs, in the right shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import CheckpointError
from .names import Shape

MAX_NAMED = 3  # tensors listed in a message


def check_complete(
    path: Path,
    names: Mapping[str, str],
    expected: Mapping[str, Shape],
    found: Mapping[str, Shape],
) -> None:
    """`names` maps parameters to tensor names, `expected` parameters and `found` tensors to shapes.

    Raises: CheckpointError that names tensors, expected and found.
    """
    missing = [x for x in names.values() if x not in found]
    if missing:
        raise CheckpointError(
            f"{path}: tensor {listed(missing)}: expected {len(names)} tensors, found none by"
            f" {'this name' if len(missing) == 1 else f'{len(missing)} of the names'}"
        )
    for parameter, name in names.items():
        if found[name] != expected[parameter]:
            raise CheckpointError(
                f"{path}: tensor {name}: expected shape {list(expected[parameter])},"
                f" found {list(found[name])}"
            )
    extra = sorted(set(found) - set(names.values()))
    if extra:
        raise CheckpointError(
            f"{path}: tensor {listed(extra)}: expected only the {len(names)} tensors of the model,"
            f" found {len(extra)} more"
        )


def listed(names: list[str]) -> str:
    """The first few, for a message."""
    return ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
