"""Launches one replica: model facts, resolved config, sockets, processes.

Never imports torch. Invariant: when `launch` has returned or raised, no child and no socket file
of this replica is left.
"""

from __future__ import annotations

import dataclasses
import logging
import os

from ..checkpoint import load_model_config, resolve_path
from ..config import SECRETS, ServerConfig
from ..device import notes
from ..host import read_host_facts
from ..log import event, setup_logging
from ..net.ipc import Hub, make_endpoints
from ..resolve import resolve
from .boot import Boot
from .children import Signals
from .replica import Programs as Programs  # a part of `launch`'s signature
from .replica import Replica
from .run_folder import RunFolder

log = logging.getLogger(__name__)


def launch(config: ServerConfig, programs: Programs) -> None:
    """Serves until a stop signal; main thread only. Raises ConfigError and CheckpointError before
    anything was started, WorkerLost after a failure; the message is for the user.
    """
    setup_logging(config.net.log_level, "launcher")
    path = resolve_path(config.model.path)
    model_config = load_model_config(path, config.model.override_args)
    asked, host = config, read_host_facts()
    config = resolve(asked, model_config, host)
    for note in notes(asked, model_config, host, config.parallel.device):
        log.warning(event("device", {"note": note}))
    log_config(config)
    with RunFolder() as folder, Hub() as hub, Signals() as signals:
        boot = Boot(
            role="",
            rank=0,
            config=config,
            model_config=model_config,
            model_path=str(path),
            endpoints=make_endpoints(config.net.transport, folder.path, config.parallel.tp_size),
            run_folder=str(folder.path),
            launcher_pid=os.getpid(),
        )
        replica = Replica(hub, signals, boot)
        try:
            replica.start(programs)
            replica.run()
        finally:
            replica.kill()


def log_config(config: ServerConfig) -> None:
    """Every resolved value once, a line per section, without secrets."""
    for name, section in dataclasses.asdict(config).items():
        shown = {k: "***" if k in SECRETS and v else v for k, v in section.items()}
        log.info(event(f"config section={name}", shown))
