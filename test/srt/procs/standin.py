"""Stand-ins for the three child processes: they speak the protocol of `boot.py`, load nothing, and
print what happens to them as `<role> <pid> <event>` lines. The served model name says what goes
wrong: `worker-fails`, `worker-bug`, `worker-exits`, `tokenizer-port`, `tokenizer-hangs`,
`tokenizer-drains`.
"""

from __future__ import annotations

import os
import signal
import sys

from treadle.srt.errors import ConfigError
from treadle.srt.lifecycle import Failed, Progress, Ready, Shutdown
from treadle.srt.messages import Message
from treadle.srt.net.ipc import Hub, Outbox
from treadle.srt.procs.boot import Boot, run_child

drained: list[Shutdown] = []
PAGES, SLOTS = 1234, 5


def serve(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    endpoints = boot.endpoints
    address = {"tokenizer": endpoints.tokenizer, "scheduler": endpoints.scheduler}
    inbox = hub.inbox(address.get(boot.role, endpoints.workers[boot.rank]))
    say(boot, "up")
    trouble(boot)
    if boot.role == "worker":
        launcher.send(Progress(boot.rank, 10, 10, "weights"))
        launcher.send(Ready("worker", boot.rank, PAGES, SLOTS))
    while True:
        message = inbox.recv()
        if message is None or not go_on(boot, message, launcher):
            return


def go_on(boot: Boot, message: Message, launcher: Outbox) -> bool:
    if isinstance(message, Ready):
        say(boot, f"got-ready {message.role} {message.num_pages} {message.num_slots}")
        launcher.send(Ready(boot.role, boot.rank, message.num_pages, message.num_slots))
        return True
    if isinstance(message, Failed):
        say(boot, f"got-failed {message.message}")
        return False
    assert isinstance(message, Shutdown)
    say(boot, "got-shutdown")
    if boot.config.model.served_name == "tokenizer-hangs" and boot.role == "tokenizer":
        signal.pause()
    if boot.config.model.served_name == "tokenizer-drains" and boot.role == "tokenizer":
        drained.append(message)
        return len(drained) < 2
    return False


def trouble(boot: Boot) -> None:
    name = boot.config.model.served_name
    if not name.startswith(f"{boot.role}-"):
        return
    if name == "worker-fails":
        raise ConfigError("the model does not fit")
    if name == "worker-bug":
        raise KeyError("a bug")
    if name == "worker-exits":
        os._exit(7)
    if name == "tokenizer-port":
        raise OSError(98, "port 1 is in use")


def say(boot: Boot, event: str) -> None:
    sys.stdout.write(f"{boot.name} {os.getpid()} {event}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run_child(serve))
