"""The boot record and the top of a child process. Deaths of parents are in test_replica."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.srt.config import ServerConfig
from treadle.srt.errors import CheckpointError, InvariantBroken
from treadle.srt.lifecycle import Failed, Progress
from treadle.srt.model_config import LayerConfig, LayerKind, ModelConfig, Rope
from treadle.srt.net.ipc import Hub, Inbox, Outbox, make_endpoints
from treadle.srt.net.typed import WireError
from treadle.srt.procs import boot as boot_module
from treadle.srt.procs.boot import Boot, read_boot, run_child, write_boot

WAIT_S = 60.0


def make_boot(folder: Path) -> Boot:
    model = ModelConfig(
        architecture="Gemma3ForCausalLM",
        model_type="gemma3_text",
        vocab_size=10,
        hidden_size=8,
        intermediate_size=8,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        context_len=64,
        rms_norm_eps=1e-6,
        activation="silu",
        attention_scale=0.5,
        embed_scale=1.0,
        qkv_bias=False,
        o_bias=False,
        qk_norm=True,
        norm_plus_one=True,
        sandwich_norm=True,
        tie_embeddings=True,
        window=8,
        layers=(
            LayerConfig(LayerKind.WINDOW, Rope(1e4)),
            LayerConfig(LayerKind.GLOBAL, Rope(1e6, "linear", 8.0)),
        ),
        eos_ids=(1, 2),
        is_quantized=False,
    )
    endpoints = make_endpoints("ipc", folder, 2)
    config = ServerConfig()
    return Boot("worker", 1, config, model, "/m", endpoints, str(folder), os.getppid())


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """A record on standard input, and a process whose title, log and parent are left alone."""
    boot = make_boot(tmp_path)
    feed(monkeypatch, write_boot(boot))
    monkeypatch.setattr(boot_module, "setup_logging", lambda level, process: None)
    monkeypatch.setattr(boot_module, "watch_parent", lambda boot, *, has_clients: None)
    monkeypatch.setattr("setproctitle.setproctitle", lambda title: None)
    return boot


@pytest.fixture
def launcher(boot: Boot) -> Iterator[Inbox]:
    with Hub() as hub:
        yield hub.inbox(boot.endpoints.launcher)


def test_record_survives_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    boot = make_boot(tmp_path)
    feed(monkeypatch, write_boot(boot))
    assert read_boot() == boot


@pytest.mark.parametrize("data", [b"", b"{}", b"not json"])
def test_anything_else_on_standard_input_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch):
    feed(monkeypatch, data)
    with pytest.raises(WireError):
        read_boot()


def test_name_has_the_rank_of_workers_only(tmp_path: Path):
    boot = make_boot(tmp_path)
    assert boot.name == "worker1"
    assert replace(boot, role="scheduler", rank=0).name == "scheduler"


def test_main_that_returns_gives_status_0_and_its_messages_arrive(boot: Boot, launcher: Inbox):
    def main(given: Boot, hub: Hub, out: Outbox) -> None:
        assert given == boot
        out.send(Progress(1, 2, 3, "x"))

    assert run_child(main) == 0
    assert launcher.recv(WAIT_S) == Progress(1, 2, 3, "x")
    assert launcher.drain() == []


@pytest.mark.parametrize(
    ("error", "message", "is_traced"),
    [
        (CheckpointError("model.gguf: expected GGUF"), "model.gguf: expected GGUF", False),
        (OSError(98, "port in use"), "OSError: [Errno 98] port in use", False),
        (MemoryError("1 GiB"), "MemoryError: 1 GiB", False),
        (InvariantBroken("T2"), "InvariantBroken: T2", True),
        (ZeroDivisionError("x"), "ZeroDivisionError: x", True),
    ],
)
def test_error_becomes_one_failed_message_and_only_bugs_are_traced(
    boot: Boot,
    launcher: Inbox,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    message: str,
    is_traced: bool,
):
    def main(boot: Boot, hub: Hub, out: Outbox) -> None:
        raise error

    assert run_child(main) == 1
    assert launcher.recv(WAIT_S) == Failed("worker", 1, message)
    assert bool(caplog.records) == is_traced


def test_child_without_a_launcher_removes_the_folder(
    boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    orphan = replace(boot, launcher_pid=1 << 22)
    feed(monkeypatch, write_boot(orphan))
    monkeypatch.setattr(boot_module, "LAST_WORD_MS", 1)
    assert run_child(lambda boot, hub, out: None) == 0
    assert not tmp_path.exists()
