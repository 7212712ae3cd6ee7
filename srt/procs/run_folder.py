"""The private folder (0700) that holds the sockets of one replica, and what dead ones left.

`<tmp>/treadle-<pid>-<random>/lock` is locked by the launcher for as long as it lives, so a folder
whose lock can be taken is stale; the process id is for people. (A process id alone would mislead in
containers that share a temporary folder.) The lock file appears already locked, by renaming.
Only what is named exactly so, private and ours is ever removed: other people's things in a
temporary folder may be called treadle-something too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType

from ..errors import ConfigError

PREFIX = "treadle-"
LOCK = "lock"

_NAME = re.compile(rf"{PREFIX}[0-9]+-[a-z0-9_]{{8}}")  # the end is tempfile's


class RunFolder:
    """Created on entry; on exit, and when a later launcher finds it stale, removed."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._lock = -1
        self.path = Path()

    def __enter__(self) -> RunFolder:
        """Raises ConfigError where no folder can be made: a full disk, no temporary folder."""
        try:
            parent = self._parent or Path(tempfile.gettempdir())
            remove_stale(parent)
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
            self._take_lock()
        except OSError as e:
            if self.path != Path():
                shutil.rmtree(self.path, ignore_errors=True)
            raise ConfigError(
                f"cannot make a folder for sockets: {e}; TMPDIR can name another place"
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _take_lock(self) -> None:
        fresh = self.path / "lock.new"
        self._lock = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / LOCK)


def remove_stale(parent: Path) -> None:
    """Removes the folders of launchers that are gone; all else is left alone."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if _is_run_folder(folder) and _is_stale(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another launcher was faster, or its lock is not there yet
            continue


def _is_run_folder(folder: Path) -> bool:
    if not _NAME.fullmatch(folder.name):
        return False
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    return is_private and found.st_uid == os.getuid()


def _is_stale(lock: Path) -> bool:
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
