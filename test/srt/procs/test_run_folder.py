"""The socket folder: private, removed, and cleaned up after launchers that were killed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from treadle.srt.errors import ConfigError
from treadle.srt.procs.run_folder import RunFolder, remove_stale


def test_folder_is_private_and_removed_with_all_that_is_in_it(tmp_path: Path):
    with RunFolder(tmp_path) as folder:
        assert folder.path.parent == tmp_path
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        (folder.path / "socket").touch()
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_living_launcher_is_left_alone(tmp_path: Path):
    with RunFolder(tmp_path) as first, RunFolder(tmp_path) as second:
        assert first.path.exists() and second.path.exists()
        remove_stale(tmp_path)
        assert first.path.exists() and second.path.exists()


def test_folder_whose_lock_is_free_is_removed(tmp_path: Path):
    dead = tmp_path / "treadle-123-abcdefgh"
    dead.mkdir(0o700)
    (dead / "lock").touch()
    (dead / "scheduler").touch()
    with RunFolder(tmp_path):
        assert not dead.exists()


def test_folder_without_a_lock_is_just_being_made(tmp_path: Path):
    young = tmp_path / "treadle-123-abcdefgh"
    young.mkdir(0o700)
    (young / "lock.new").touch()
    remove_stale(tmp_path)
    assert young.exists()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("treadle", 0o700),
        ("treadle-my-project", 0o700),
        ("treadle-2026-backup", 0o700),
        ("treadle-123-abcdefgh", 0o755),
    ],
)
def test_folders_of_other_people_are_left_alone(tmp_path: Path, name: str, mode: int):
    other = tmp_path / name
    other.mkdir()
    other.chmod(mode)
    (other / "lock").touch()
    remove_stale(tmp_path)
    assert other.exists()


def test_what_only_looks_like_a_folder_does_not_stop_a_launch(tmp_path: Path):
    (tmp_path / "treadle-0.1.0-py3-none-any.whl").touch()
    (tmp_path / "treadle-123-abcdefgh").touch()
    odd = tmp_path / "treadle-124-abcdefgh"
    (odd / "lock").mkdir(parents=True)
    odd.chmod(0o700)
    with RunFolder(tmp_path):
        assert odd.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_full_disk_is_said_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ConfigError, match="No space left on device.*TMPDIR"), RunFolder(tmp_path):
        raise AssertionError("unreachable")
    assert list(tmp_path.iterdir()) == []


def test_folder_is_removed_when_the_launch_fails(tmp_path: Path):
    try:
        with RunFolder(tmp_path):
            raise ValueError
    except ValueError:
        pass
    assert list(tmp_path.iterdir()) == []
