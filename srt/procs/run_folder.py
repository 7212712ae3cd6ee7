"""The private folder (0700) that holds the sockets of one replica, and what dead ones left.

`<tmp>/treadle-<pid>-<random>/lock` is locked by the launcher for as long as it lives, so a folder
whose lock can be taken is stale; the process id is for people. (A process id alone would mislead in
containers that share a temporary folder.) The lock file appears already locked, by renaming.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

PREFIX = "treadle-"
LOCK = "lock"


class RunFolder:
    """Created on entry; on exit, and when a later launcher finds it stale, removed."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent or Path(tempfile.gettempdir())
        self._lock = -1
        self.path = Path()

    def __enter__(self) -> RunFolder:
        remove_stale(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self._parent))
        fresh = self.path / "lock.new"
        self._lock = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / LOCK)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_stale(parent: Path) -> None:
    """Removes the folders of launchers that are gone; those of other users are left alone."""
    for folder in parent.glob(f"{PREFIX}*-*"):
        try:
            if folder.stat().st_uid == os.getuid() and _is_stale(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another launcher was faster
            continue


def _is_stale(lock: Path) -> bool:
    handle = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
