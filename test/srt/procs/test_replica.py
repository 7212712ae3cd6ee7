"""A replica's life with stand-in processes: start, hand-over of capacities, stop, every death."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
import psutil
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WAIT_S = 60.0
LAUNCH = """
import sys
from treadle.launch_server import main
from treadle.srt.procs import replica
from treadle.srt.procs.replica import Programs
if "tokenizer-hangs" in sys.argv:  # nothing is to be had from waiting for it
    replica.LAST_ANSWER_S = 0.5
    replica.STOP_ORDER = (("tokenizer", 0.5), *replica.STOP_ORDER[1:])
sys.exit(main(sys.argv[1:], programs=Programs("standin_tokenizer", "standin", "standin")))
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
CHILDREN = ("tokenizer", "scheduler", "worker0")


class Server:
    """The launch command under test; `lines` is what its children have said so far."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_bytes(orjson.dumps(CONFIG))
        self.tmp = Path(tempfile.mkdtemp(prefix="t-"))  # a socket's path must be short
        path = os.pathsep.join([str(ROOT / "python"), str(HERE)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, "--model-path", str(self.model), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.tmp)},
        )
        self.lines: list[str] = []
        self.pids: dict[str, int] = {}

    def read_until(self, *endings: str) -> None:
        """Reads until each of `endings` has ended a line, in any order."""
        missing = set(endings)
        assert self.process.stdout is not None
        while missing:
            line = self.process.stdout.readline().rstrip("\n")
            if not line:
                pytest.fail(f"no {missing} among {self.lines}: {self.finish()[1]}")
            self._note(line)
            missing -= {x for x in missing if line.endswith(x)}

    def wait_until_serving(self) -> None:
        self.read_until("got-ready scheduler 1234 5")

    def finish(self) -> tuple[int, str]:
        """Exit status and standard error, once all that hold the pipes have ended."""
        out, err = self.process.communicate(timeout=WAIT_S)
        for line in out.splitlines():
            self._note(line)
        return self.process.returncode, err

    def events(self, name: str) -> list[str]:
        return [line.split(" ", 2)[2] for line in self.lines if line.startswith(name + " ")]

    def leftovers(self) -> list[str]:
        return [x.name for x in self.tmp.iterdir()]

    def orphans(self) -> list[int]:
        """Children still running, after a moment for the kernel to end them."""
        found = [psutil.Process(pid) for pid in self.pids.values() if psutil.pid_exists(pid)]
        _, alive = psutil.wait_procs(found, timeout=WAIT_S)
        return [p.pid for p in alive if p.status() != psutil.STATUS_ZOMBIE]

    def _note(self, line: str) -> None:
        self.lines.append(line)
        name, pid, _ = line.split(" ", 2)
        self.pids[name] = int(pid)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait()
        shutil.rmtree(self.tmp)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    started: list[Server] = []
    yield started
    for server in started:
        server.close()


@pytest.fixture
def start(servers: list[Server], tmp_path: Path):
    def start(*argv: str) -> Server:
        folder = tmp_path / str(len(servers))
        folder.mkdir()
        servers.append(Server(folder, *argv))
        return servers[-1]

    return start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_all_in_order_with_status_0(start, number: signal.Signals):
    server = start()
    server.wait_until_serving()
    server.process.send_signal(number)
    status, err = server.finish()
    assert status == 0
    stopped = [x.split(" ")[0] for x in server.lines if x.endswith("got-shutdown")]
    assert stopped == ["tokenizer", "scheduler", "worker0"]
    assert server.orphans() == [] and server.leftovers() == []
    assert "error" not in err and "Traceback" not in err


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_capacities_of_the_worker_reach_scheduler_then_tokenizer(start, transport: str):
    server = start("--ipc-transport", transport)
    server.wait_until_serving()
    assert "got-ready worker 1234 5" in server.events("scheduler")
    assert server.events("tokenizer") == ["up", "got-ready scheduler 1234 5"]
    # Sessions of their own: a Ctrl-C at the terminal is for the launcher alone.
    assert {os.getsid(pid) for pid in server.pids.values()} == {*server.pids.values()}
    server.process.terminate()
    assert server.finish()[0] == 0


@pytest.mark.parametrize("victim", ["scheduler", "worker0"])
def test_death_of_a_process_is_told_to_the_tokenizer_and_ends_the_rest(start, victim: str):
    server = start()
    server.wait_until_serving()
    os.kill(server.pids[victim], signal.SIGKILL)
    status, err = server.finish()
    reason = f"{victim} was killed by SIGKILL (out of memory?)"
    assert status == 1
    assert server.events("tokenizer")[-1] == f"got-failed {reason}"
    assert err.splitlines()[-1] == f"error: {reason}"
    assert server.orphans() == [] and server.leftovers() == []


def test_death_of_the_tokenizer_ends_the_rest(start):
    server = start()
    server.wait_until_serving()
    os.kill(server.pids["tokenizer"], signal.SIGKILL)
    status, err = server.finish()
    assert status == 1
    assert err.splitlines()[-1].startswith("error: tokenizer was killed by SIGKILL")
    assert server.orphans() == [] and server.leftovers() == []


def test_death_of_the_launcher_is_told_to_the_tokenizer_and_leaves_nothing(start):
    server = start()
    server.wait_until_serving()
    server.process.kill()
    status, _ = server.finish()
    assert status == -signal.SIGKILL
    assert server.events("tokenizer")[-1] == "got-failed the launcher died"
    assert server.orphans() == [] and server.leftovers() == []


@pytest.mark.parametrize(
    ("trouble", "message", "has_trace"),
    [
        ("worker-fails", "the model does not fit", False),
        ("worker-exits", "worker0 ended with exit status 7", False),
        ("worker-bug", "KeyError: 'a bug'", True),
        ("tokenizer-port", "OSError: [Errno 98] port 1 is in use", False),
    ],
)
def test_failure_while_starting_ends_with_one_line(
    start, trouble: str, message: str, has_trace: bool
):
    server = start("--served-model-name", trouble)
    status, err = server.finish()
    assert status == 1
    assert [x for x in err.splitlines() if x.startswith("error:")] == [f"error: {message}"]
    assert ("Traceback" in err) == has_trace
    assert server.orphans() == [] and server.leftovers() == []


def test_second_signal_does_not_wait_for_a_tokenizer_that_hangs(start):
    server = start("--served-model-name", "tokenizer-hangs")
    server.wait_until_serving()
    server.process.terminate()
    server.read_until("got-shutdown")
    server.process.terminate()
    assert server.finish()[0] == 0
    assert server.orphans() == [] and server.leftovers() == []


def test_a_stop_waits_for_running_requests_and_a_second_one_does_not(start):
    server = start("--served-model-name", "tokenizer-drains")
    server.wait_until_serving()
    server.process.terminate()
    server.read_until("got-shutdown")
    server.process.terminate()
    server.read_until("got-shutdown")
    status, err = server.finish()
    assert status == 0
    assert "stopping_now" in err and "killed" not in err
    stopped = [x.split(" ")[0] for x in server.lines if x.endswith("got-shutdown")]
    assert stopped == ["tokenizer", "tokenizer", "scheduler", "worker0"]


def test_a_drain_ends_after_its_time(start):
    server = start("--served-model-name", "tokenizer-hangs", "--drain-timeout", "0")
    server.wait_until_serving()
    server.process.terminate()
    assert server.finish()[0] == 0
    assert server.orphans() == []


def test_death_while_the_tokenizer_drains_is_a_failure(start):
    server = start("--served-model-name", "tokenizer-hangs")
    server.wait_until_serving()
    server.process.terminate()
    server.read_until("got-shutdown")
    os.kill(server.pids["worker0"], signal.SIGKILL)
    status, err = server.finish()
    assert status == 1
    assert err.splitlines()[-1].startswith("error: worker0 was killed")
    assert server.orphans() == [] and server.leftovers() == []


def test_next_start_removes_the_folder_of_a_launcher_that_was_killed(start):
    server = start()
    server.wait_until_serving()
    children = [psutil.Process(server.pids[name]) for name in CHILDREN]
    for process in [psutil.Process(server.process.pid), *children]:
        process.kill()
    server.finish()
    assert len(server.leftovers()) == 1
    (server.model / "config.json").unlink()
    server.model.rmdir()
    (server.tmp / "kept").mkdir()
    code = "from pathlib import Path; from treadle.srt.procs.run_folder import RunFolder\n"
    code += f"with RunFolder(Path({str(server.tmp)!r})) as f: print(f.path.name)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "python")}
    )
    assert server.leftovers() == ["kept"]
