"""The scheduler process: learns what ids spell while the workers load, waits for their capacities,
builds the bookkeeping, runs the loop.

Composition root: the only owner of both the sockets and the `Scheduler`.
"""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..cache.layout import ring_rows
from ..cache.manager import CacheFacts, CacheManager
from ..cache.replay import ReplayRule
from ..errors import InvariantBroken
from ..grammar.mask import Vocabulary
from ..grammar.store import GrammarStore
from ..lifecycle import Ready, Shutdown
from ..log import event
from ..net.ipc import Hub, Inbox, Outbox
from ..sched.scheduler import Scheduler
from ..token_masks import TokenBytes
from .boot import Boot, run_child
from .step_loop import Bookkeeping, Ports, StepLoop

log = logging.getLogger(__name__)

GRAMMAR_THREADS = 2  # a large grammar that compiles does not hold up the masks of others


def serve(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    """Until `Shutdown`. Raises what ends the process."""
    ends = boot.endpoints
    workers = tuple(hub.outbox(address) for address in ends.workers)
    ports = Ports(hub.inbox(ends.scheduler), hub.outbox(ends.tokenizer), workers)
    sched = boot.config.sched
    beginning = await_beginning(boot, ports.inbox)
    if beginning is None:
        return
    capacity, grammars = beginning
    loop = StepLoop(
        lambda: build_bookkeeping(boot, capacity, grammars),
        ports,
        sched.watchdog_s,
        sched.decode_log_interval,
    )
    _log_capacity(boot, capacity)
    launcher.send(replace(capacity, role="scheduler", rank=0))
    loop.run()


def await_beginning(boot: Boot, inbox: Inbox) -> tuple[Ready, GrammarStore | None] | None:
    """What a loop begins with, once all of it is there; None when the server stops before.

    The vocabulary is made as soon as its table comes: no request waits for it, for none is there.
    Raises InvariantBroken for a message that cannot come yet.
    """
    capacity: Ready | None = None
    grammars: GrammarStore | None = None
    needs_table = boot.config.sched.grammar_backend != "none"
    while capacity is None or (needs_table and grammars is None):
        message = inbox.recv()
        if isinstance(message, Ready):
            capacity = message
        elif isinstance(message, TokenBytes):
            grammars = make_store(Vocabulary(message, boot.model_config.vocab_size), inbox)
        elif isinstance(message, Shutdown):
            return None
        else:
            raise InvariantBroken(f"{type(message).__name__} before the replica is ready")
    return capacity, grammars


def make_store(vocabulary: Vocabulary, inbox: Inbox) -> GrammarStore:
    """Threads start with their first work."""
    threads = ThreadPoolExecutor(GRAMMAR_THREADS, thread_name_prefix="grammar")
    return GrammarStore(vocabulary, threads, inbox.wake)


def build_bookkeeping(boot: Boot, capacity: Ready, grammars: GrammarStore | None) -> Bookkeeping:
    """Raises ConfigError for settings with which a request could never be run."""
    config = boot.config
    facts = CacheFacts(
        num_pages=capacity.num_pages,
        num_slots=capacity.num_slots,
        page_size=config.cache.page_size,
        prefix_cache=config.cache.prefix_cache,
        eviction_policy=config.cache.eviction_policy,
        num_warm=max(0, config.cache.warm_windows),
        ring_rows=ring_rows(boot.model_config, config.cache),
    )
    cache = CacheManager(facts, ReplayRule.from_config(boot.model_config, config.cache))
    scheduler = Scheduler(config.sched, config.cache, cache, config.model.context_len, grammars)
    return Bookkeeping(scheduler, cache)


def _log_capacity(boot: Boot, capacity: Ready) -> None:
    """Tools grep this line for `max_total_num_tokens=`."""
    fields: dict[str, object] = {
        "max_total_num_tokens": (capacity.num_pages - 1) * boot.config.cache.page_size,
        "max_running_requests": boot.config.sched.max_running,
        "context_len": boot.config.model.context_len,
        "chunk_tokens": boot.config.sched.chunk_tokens,
        "dp_size": 1,
    }
    log.info(event("capacity", fields))


if __name__ == "__main__":
    sys.exit(run_child(serve))
