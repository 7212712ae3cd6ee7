"""Child handles and signals as bytes. Starting real children is in test_replica."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.srt.procs.boot import write_boot
from treadle.srt.procs.children import Child, Signals, start_child, wait_for

from .test_boot import make_boot

WAIT_S = 60.0


def run(folder: Path, code: str) -> Child:
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    return Child(make_boot(folder), process)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(3)", "worker1 ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "worker1 was killed by SIGKILL (out of memory?)"),
        ("import os; os.kill(os.getpid(), 15)", "worker1 was killed by SIGTERM"),
    ],
)
def test_end_is_described_for_the_user(tmp_path: Path, code: str, words: str):
    child = run(tmp_path, code)
    assert wait_for([child], WAIT_S)
    assert not child.is_running
    assert child.describe_end() == words


def test_kill_ends_and_reaps_a_child_and_may_be_repeated(tmp_path: Path):
    child = run(tmp_path, "import signal; signal.pause()")
    assert child.is_running
    assert not wait_for([child], 0.01)
    child.kill()
    child.kill()
    assert child.process.returncode == -signal.SIGKILL


def test_child_gets_its_record_and_its_thread_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "showing.py").write_text(
        "import os, sys\n"
        f"with open({str(tmp_path / 'got')!r}, 'wb') as f:\n"
        "    f.write(sys.stdin.buffer.read() + os.environ['OMP_NUM_THREADS'].encode())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    boot = make_boot(tmp_path)
    child = start_child(boot, "showing")
    assert wait_for([child], WAIT_S)
    threads = str(boot.config.parallel.num_threads).encode()
    assert (tmp_path / "got").read_bytes() == write_boot(boot) + threads


@pytest.mark.parametrize(
    ("role", "device", "asked", "got"),
    [
        ("worker", "cuda", "", "triton"),
        ("worker", "cuda", "reference", "reference"),
        ("worker", "cpu", "", ""),
        ("scheduler", "cuda", "", ""),
    ],
)
def test_worker_on_a_gpu_gets_its_kernels_unless_the_user_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, device: str, asked: str, got: str
):
    (tmp_path / "telling.py").write_text(
        "import os\n"
        f"with open({str(tmp_path / 'kernels')!r}, 'w') as f:\n"
        "    f.write(os.environ.get('TREADLE_KERNELS', ''))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("TREADLE_KERNELS", raising=False)
    if asked:
        monkeypatch.setenv("TREADLE_KERNELS", asked)
    boot = make_boot(tmp_path)
    config = replace(boot.config, parallel=replace(boot.config.parallel, device=device))
    child = start_child(replace(boot, role=role, config=config), "telling")
    assert wait_for([child], WAIT_S)
    assert (tmp_path / "kernels").read_text() == got


def test_module_that_is_not_there_is_a_death_and_not_an_exception(tmp_path: Path):
    child = start_child(make_boot(tmp_path), "treadle_has_no_such_module")
    assert wait_for([child], WAIT_S)
    assert child.process.returncode == 1


def test_signals_wake_a_poller_and_are_counted():
    before = signal.getsignal(signal.SIGHUP)
    with Signals() as signals:
        assert not select.select([signals], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGHUP)
        assert select.select([signals], [], [], WAIT_S)[0]
        signals.clear()
        assert not select.select([signals], [], [], 0)[0]
        os.kill(os.getpid(), signal.SIGCHLD)
        assert select.select([signals], [], [], WAIT_S)[0]
        assert signals.stop_requests == 1
    assert signal.getsignal(signal.SIGHUP) == before
