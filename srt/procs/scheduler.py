"""The scheduler process: waits for the workers' capacities, builds the bookkeeping, runs the loop.

Composition root: the only owner of both the sockets and the `Scheduler`.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

from ..cache.manager import CacheFacts, CacheManager
from ..cache.replay import ReplayRule
from ..errors import InvariantBroken
from ..log import event
from ..messages import Ready, Shutdown
from ..net.ipc import Hub, Inbox, Outbox
from ..sched.scheduler import Scheduler
from .boot import Boot, run_child
from .step_loop import Engine, Ports, StepLoop

log = logging.getLogger(__name__)


def serve(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    """Until `Shutdown`. Raises what ends the process."""
    ends = boot.endpoints
    workers = tuple(hub.outbox(address) for address in ends.workers)
    ports = Ports(hub.inbox(ends.scheduler), hub.outbox(ends.tokenizer), workers)
    capacity = _await_capacity(ports.inbox)
    if capacity is None:
        return
    sched = boot.config.sched
    loop = StepLoop(
        lambda: build_engine(boot, capacity), ports, sched.watchdog_s, sched.decode_log_interval
    )
    _log_capacity(boot, capacity)
    launcher.send(replace(capacity, role="scheduler", rank=0))
    loop.run()


def build_engine(boot: Boot, capacity: Ready) -> Engine:
    """Raises ConfigError for settings with which a request could never be run."""
    config = boot.config
    facts = CacheFacts(
        num_pages=capacity.num_pages,
        num_slots=capacity.num_slots,
        page_size=config.cache.page_size,
        prefix_cache=config.cache.prefix_cache,
        eviction_policy=config.cache.eviction_policy,
    )
    cache = CacheManager(facts, ReplayRule.from_config(boot.model_config, config.cache))
    scheduler = Scheduler(config.sched, config.cache, cache, config.model.context_len)
    return Engine(scheduler, cache)


def _await_capacity(inbox: Inbox) -> Ready | None:
    """None when the server stops before it has started."""
    message = inbox.recv()
    if isinstance(message, Ready):
        return message
    if isinstance(message, Shutdown):
        return None
    raise InvariantBroken(f"{type(message).__name__} before the workers are ready")


def _log_capacity(boot: Boot, capacity: Ready) -> None:
    """Tools grep this line for `max_total_num_tokens=`."""
    fields: dict[str, object] = {
        "max_total_num_tokens": (capacity.num_pages - 1) * boot.config.cache.page_size,
        "max_running_requests": capacity.num_slots - 1,
        "context_len": boot.config.model.context_len,
        "chunk_tokens": boot.config.sched.chunk_tokens,
        "dp_size": 1,
    }
    log.info(event("capacity", fields))


if __name__ == "__main__":
    sys.exit(run_child(serve))
