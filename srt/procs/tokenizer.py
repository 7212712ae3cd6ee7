"""The process that talks to clients: HTTP, tokenizer, in-flight table. Composition root.

Life: listens at once and answers 503; serves from the scheduler's Ready on; drains on Shutdown
(or SIGTERM to itself) and ends with status 0; after a failure elsewhere it answers everybody and
ends with status 1. Its last part fits `drain_s` and a second; a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shlex
import signal
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orjson
import prometheus_client
import psutil
import uvloop

from ..api.app import make_app
from ..api.grammar import GrammarDesk
from ..api.output_formats import find_formats
from ..api.sampling import SamplingDefaults, SamplingReader
from ..api.service import ModelInfo, Service
from ..checkpoint import load_sampling_defaults, resolve_path
from ..errors import ConfigError, TreadleError, WorkerLost
from ..lifecycle import Ready
from ..log import event
from ..metrics import HttpMetrics, RequestMetrics
from ..net.http_server import HttpServer, bind
from ..net.ipc import AsyncChannel, Hub, Outbox
from ..tokenizer.encode import Tokenizer
from ..tokenizer.frontend import Frontend, ServingState
from ..tokenizer.jobs import probe_job
from ..tokenizer.limits import Limits
from ..tokenizer.prompt_formats import pick_format
from ..tokenizer.prompts import Prompts
from ..tokenizer.token_table import token_table
from .boot import Boot, run_child

log = logging.getLogger(__name__)

WARM_UP_TOKENS = 4
# Objects of every token, none in a cycle: looking for cycles at each 700th cost a tenth of a token.
YOUNG_OBJECTS = 50_000


def main(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    """Until told to stop. Raises WorkerLost after a failure of another process."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    gc.set_threshold(YOUNG_OBJECTS)
    uvloop.run(serve(boot, hub, launcher))


async def serve(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    net = boot.config.net
    sock = bind(net.host, net.port)
    channel = hub.channel(boot.endpoints.tokenizer, boot.endpoints.scheduler)
    service = make_service(boot, channel)
    frontend = service.frontend
    for stop in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(stop, frontend.drain)
    server = HttpServer(make_app(service, launch_command(boot)), net)
    tasks = [
        asyncio.create_task(_receive(frontend)),
        asyncio.create_task(_announce(frontend, launcher, has_warm_up=net.warmup)),
        asyncio.create_task(_stop(frontend, server, boot.config.api.drain_s)),
    ]
    log.info(event("listening", {"host": net.host, "port": sock.getsockname()[1]}))
    try:
        await server.serve(sockets=[sock])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if frontend.lost is not None:
        raise WorkerLost(frontend.lost)


def make_service(boot: Boot, channel: AsyncChannel) -> Service:
    """Everything that the routes work with; tells the scheduler what ids spell, without which it
    does not begin. Raises CheckpointError, ConfigError.
    """
    config, model = boot.config, boot.model_config
    named = config.model.tokenizer_path
    is_own = named == config.model.path
    tokenizer = Tokenizer.load(Path(boot.model_path) if is_own else resolve_path(named))
    if tokenizer.vocab_size > model.vocab_size:
        raise ConfigError(
            f"--tokenizer-path {named} has {tokenizer.vocab_size} ids, more than the "
            f"{model.vocab_size} of the model: it belongs to another one"
        )
    limits = Limits(config.model.context_len, min(model.vocab_size, tokenizer.vocab_size))
    eos_ids = tuple(i for i in dict.fromkeys((*model.eos_ids, *tokenizer.eos_ids)))
    metrics = RequestMetrics(config.model.served_name, config.api.metrics_prefix)
    template = pick_format(model.architecture, tokenizer, config.model.chat_template)
    frontend = Frontend(channel, tokenizer, metrics)
    has_grammars = config.sched.grammar_backend != "none"
    if has_grammars:
        channel.send(token_table(tokenizer, eos_ids))
    return Service(
        frontend=frontend,
        prompts=Prompts(tokenizer, template, limits, orjson.loads(config.api.template_kwargs)),
        tokenizer=tokenizer,
        limits=limits,
        sampling=SamplingReader(_defaults(boot), limits, eos_ids),
        grammars=GrammarDesk(tokenizer, is_on=has_grammars),
        formats=find_formats(config.model, model.model_type, template, tokenizer),
        model=ModelInfo(
            served_name=config.model.served_name,
            path=config.model.path,
            tokenizer_path=named,
            architecture=model.architecture,
            model_type=model.model_type,
            window=model.window if model.window_layers else 0,
            created=int(time.time()),
        ),
        config=config,
        metrics=metrics,
        http_metrics=HttpMetrics(metrics.registry, metrics.prefix),
        version=_version(),
    )


def launch_command(boot: Boot) -> str:
    """The launcher's command line without the API keys."""
    try:
        command = shlex.join(psutil.Process(boot.launcher_pid).cmdline())
    except psutil.Error:
        return ""
    for key in (boot.config.net.api_key, boot.config.api.admin_api_key):
        command = command.replace(key, "***") if key else command
    return command


def _defaults(boot: Boot) -> SamplingDefaults:
    if boot.config.model.sampling_defaults != "model":
        return SamplingDefaults()
    found = load_sampling_defaults(Path(boot.model_path))
    base = SamplingDefaults()
    return SamplingDefaults(
        temperature=float(found.get("temperature", base.temperature)),
        top_p=float(found.get("top_p", base.top_p)),
        top_k=int(found.get("top_k", base.top_k)),
        min_p=float(found.get("min_p", base.min_p)),
        repetition_penalty=float(found.get("repetition_penalty", base.repetition_penalty)),
    )


def _version() -> str:
    try:
        return version("treadle")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0"


async def _receive(frontend: Frontend) -> None:
    try:
        await frontend.run()
    except Exception as e:  # the top of this process's other half: clients must be answered
        log.error("receive_failed", exc_info=e)
        frontend.lose(f"tokenizer: {e}")


async def _announce(frontend: Frontend, launcher: Outbox, *, has_warm_up: bool) -> None:
    """Ready to the launcher, after a first generation has gone through all processes."""
    await frontend.serving.wait()
    if has_warm_up:
        probe = frontend.submit([probe_job(WARM_UP_TOKENS)], rid="warm-up", is_probe=True)
        try:
            await anext(probe)
        except TreadleError as e:
            frontend.lose(f"the warm-up request failed: {e.message}")
            return
        finally:
            probe.close()
    launcher.send(Ready("tokenizer", 0))


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _stop(frontend: Frontend, server: HttpServer, drain_s: float) -> None:
    """After `stopping`: lets what runs end, tells the rest, ends the server."""
    await frontend.stopping.wait()
    if frontend.state is ServingState.DRAINING:
        waits = [asyncio.create_task(frontend.wait_idle())]
        waits.append(asyncio.create_task(_until(frontend.hurried)))
        await asyncio.wait(waits, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        frontend.end_all("the server is shutting down")
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(run_child(main, has_clients=True))
