"""The socket folder: private, removed, and cleaned up after launchers that were killed."""

from __future__ import annotations

import stat
from pathlib import Path

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
    dead = tmp_path / "treadle-123-abc"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "scheduler").touch()
    with RunFolder(tmp_path):
        assert not dead.exists()


def test_folder_without_a_lock_is_just_being_made(tmp_path: Path):
    young = tmp_path / "treadle-123-abc"
    young.mkdir()
    (young / "lock.new").touch()
    remove_stale(tmp_path)
    assert young.exists()


def test_other_folders_are_left_alone(tmp_path: Path):
    other = tmp_path / "treadle"
    other.mkdir()
    (other / "lock").touch()
    remove_stale(tmp_path)
    assert other.exists()


def test_folder_is_removed_when_the_launch_fails(tmp_path: Path):
    try:
        with RunFolder(tmp_path):
            raise ValueError
    except ValueError:
        pass
    assert list(tmp_path.iterdir()) == []
