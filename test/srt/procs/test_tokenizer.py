"""The tokenizer process with a launcher and a scheduler that are inboxes of this test."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer as MergeEngine
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from test.serving import READY, FakeEngine, refuse
from treadle.srt.config import CacheSection, ModelSection, NetSection, ServerConfig
from treadle.srt.errors import ConfigError, WorkerLost
from treadle.srt.lifecycle import Failed, Ready, Shutdown
from treadle.srt.messages import Finish, Message
from treadle.srt.model_config import LayerConfig, LayerKind, ModelConfig, Rope
from treadle.srt.net.http_server import bind
from treadle.srt.net.ipc import Hub, make_endpoints
from treadle.srt.procs.boot import Boot
from treadle.srt.procs.tokenizer import launch_command, make_service, serve

MODEL = ModelConfig(
    architecture="LlamaForCausalLM", model_type="llama", vocab_size=257, hidden_size=8,
    intermediate_size=8, num_heads=1, num_kv_heads=1, head_dim=8, context_len=64,
    rms_norm_eps=1e-6, activation="silu", attention_scale=1.0, embed_scale=1.0, qkv_bias=False,
    o_bias=False, qk_norm=False, norm_plus_one=False, sandwich_norm=False, tie_embeddings=True,
    window=0, layers=(LayerConfig(LayerKind.GLOBAL, Rope(1e4)),), eos_ids=(256,),
    is_quantized=False,
)  # fmt: skip


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    engine = MergeEngine(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(["<eos>"])
    engine.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25}')
    return tmp_path


class Outside:
    """What surrounds the process: its boot record, the launcher's and the scheduler's sockets."""

    def __init__(self, boot: Boot, hub: Hub) -> None:
        self.boot = boot
        self.launcher = hub.inbox(boot.endpoints.launcher)
        self.scheduler = hub.inbox(boot.endpoints.scheduler)
        self.to_process = hub.outbox(boot.endpoints.tokenizer)
        self.engine = FakeEngine(outbox=hub.outbox(boot.endpoints.tokenizer))

    async def schedule(self) -> None:
        while True:
            for message in self.scheduler.drain():
                self.engine.send(message)
            await asyncio.sleep(0.001)

    async def heard(self) -> Message:
        async with asyncio.timeout(60):
            while True:
                for message in self.launcher.drain():
                    return message
                await asyncio.sleep(0.001)


@asynccontextmanager
async def started(
    folder: Path, run: Path, caplog: pytest.LogCaptureFixture, net: NetSection
) -> AsyncIterator[tuple[Outside, asyncio.Task[None], httpx.AsyncClient]]:
    path = str(folder)
    model = ModelSection(path=path, tokenizer_path=path, served_name="tiny", context_len=64)
    config = ServerConfig(model=model, cache=CacheSection(), net=net)
    boot = Boot(
        "tokenizer", 0, config, MODEL, str(folder), make_endpoints("ipc", run, 1), str(run),
        os.getpid(),
    )  # fmt: skip
    with Hub() as hub, Hub() as own, caplog.at_level(logging.INFO):
        outside = Outside(boot, hub)
        task = asyncio.create_task(serve(boot, own, own.outbox(boot.endpoints.launcher)))
        scheduling = asyncio.create_task(outside.schedule())
        port = None
        async with asyncio.timeout(60):
            while port is None:
                await asyncio.sleep(0.001)
                port = re.search(r"listening host=\S+ port=(\d+)", caplog.text)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port.group(1)}", trust_env=False, timeout=60
        ) as client:
            yield outside, task, client
        scheduling.cancel()
        task.cancel()
        await asyncio.gather(scheduling, task, return_exceptions=True)


NET = NetSection(port=0, log_level_http="info")


async def test_life_from_starting_to_a_drained_end(
    model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with started(model_folder, tmp_path, caplog, NET) as (outside, task, client):
        async with asyncio.timeout(60):
            while True:
                try:
                    assert (await client.get("/health")).status_code == 503
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.01)
        outside.to_process.send(READY)
        assert await outside.heard() == Ready("tokenizer", 0)
        assert outside.engine.requests[0].sampling.max_new_tokens == 4  # the warm-up
        assert (await client.get("/health")).status_code == 200
        body = {"prompt": "a", "max_tokens": 3}
        answer = await client.post("/v1/completions", json=body)
        assert answer.json()["usage"]["completion_tokens"] == 3
        assert outside.engine.requests[-1].sampling.temperature == 0.25  # the model's own
        outside.to_process.send(Shutdown("stop"))
        await task


async def test_failure_elsewhere_answers_everybody_and_raises(
    model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    net = replace(NET, warmup=False)
    async with started(model_folder, tmp_path, caplog, net) as (outside, task, client):
        outside.engine.script = lambda engine, request: engine.emit(request.rid, b"a")
        outside.to_process.send(READY)
        assert isinstance(await outside.heard(), Ready)
        whole = asyncio.create_task(client.post("/generate", json={"text": "a"}))
        stream = asyncio.create_task(client.post("/generate", json={"text": "a", "stream": True}))
        async with asyncio.timeout(60):
            while len(outside.engine.live) < 2:
                await asyncio.sleep(0.001)
        outside.to_process.send(Failed("launcher", 0, "worker0 was killed"))
        assert (await whole).status_code == 503
        assert "worker0 was killed" in (await stream).text
        with pytest.raises(WorkerLost, match="worker0 was killed"):
            await task


async def test_a_drain_lets_streams_end_until_a_second_signal_ends_them_with_an_error(
    model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    net = replace(NET, warmup=False)
    async with started(model_folder, tmp_path, caplog, net) as (outside, task, client):
        engine = outside.engine
        engine.script = lambda engine, request: engine.emit(request.rid, b"a")
        outside.to_process.send(READY)
        assert isinstance(await outside.heard(), Ready)
        bodies = [{"text": "a", "stream": True, "rid": rid} for rid in ("ends", "goes-on")]
        streams = [asyncio.create_task(client.post("/generate", json=body)) for body in bodies]
        async with asyncio.timeout(60):
            while len(engine.live) < 2:
                await asyncio.sleep(0.001)
            outside.to_process.send(Shutdown("stop"))
            while (await client.get("/health")).status_code != 503:
                await asyncio.sleep(0.001)
            refused = await client.post("/generate", json={"text": "a"})
            assert refused.status_code == 503
            assert refused.headers["x-not-admitted"] == "1"
            engine.emit("ends", b"b", Finish("length"))
            assert '"type":"length"' in (await streams[0]).text
            outside.to_process.send(Shutdown("stop"))
            assert "shutting down" in (await streams[1]).text
            assert (await streams[1]).text.endswith("data: [DONE]\n\n")
        await task


async def test_failed_warm_up_ends_the_process(
    model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with started(model_folder, tmp_path, caplog, NET) as (outside, task, _):
        outside.engine.script = refuse(500, "the logits are not finite")
        outside.to_process.send(READY)
        with pytest.raises(WorkerLost, match="warm-up .* not finite"):
            await task


def test_port_in_use_is_an_error_of_the_flag():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}"):
            bind("127.0.0.1", port)


async def test_tokenizer_of_another_model_is_refused(model_folder: Path, tmp_path: Path):
    path = str(model_folder)
    model = ModelSection(path=path, tokenizer_path=path, served_name="tiny", context_len=64)
    boot = Boot(
        "tokenizer", 0, ServerConfig(model=model), replace(MODEL, vocab_size=100), path,
        make_endpoints("ipc", tmp_path, 1), "", os.getpid(),
    )  # fmt: skip
    with Hub() as hub:
        channel = hub.channel(boot.endpoints.tokenizer, boot.endpoints.scheduler)
        with pytest.raises(ConfigError, match="--tokenizer-path .* 257 ids, more than the 100"):
            make_service(boot, channel)


def test_launch_command_hides_the_key(model_folder: Path, tmp_path: Path):
    net = NetSection(api_key="pytest")
    boot = Boot(
        "tokenizer", 0, ServerConfig(net=net), MODEL, "", make_endpoints("ipc", tmp_path, 1), "",
        os.getpid(),
    )  # fmt: skip
    assert "pytest" not in launch_command(boot)
    assert launch_command(replace(boot, launcher_pid=2**22 + 1)) == ""
