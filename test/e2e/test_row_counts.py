"""Rows of DeepSeek-V4.1 as the worker counts them, layer by layer, read from the metrics page."""

from __future__ import annotations

import random
import re

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.e2e.server import Server
from test.v41 import CHECKPOINTS
from treadle.srt.checkpoint import load_model_config

pytestmark = pytest.mark.e2e

NANO = CHECKPOINTS / "v41-nano"
W = 128
PROMPT = random.Random(3).choices(range(20, 480), k=700)
FLAGS = ("--kv-cache-memory", "16M", "--page-size", "2", "--max-warm-windows", "0")


@pytest.fixture(scope="module")
def server(serve_module: StartServer) -> Server:
    return serve_module(str(NANO), *FLAGS, "--num-threads", "1")


def counted(server: Server) -> list[int]:
    """Rows that have entered each layer since the start, bottom first."""
    text = httpx.get(server.url + "/metrics", timeout=60).text
    found = re.findall(r'^treadle:layer_rows_total\{.*layer="(\d+)".*\} (\S+)$', text, re.M)
    return [int(float(rows)) for _, rows in sorted(found, key=lambda x: int(x[0]))]


def run(server: Server, ids: list[int], **fields: object) -> tuple[list[int], dict]:
    """Rows by layer that one token after `ids` took, and what the answer says of them."""
    before = counted(server)
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1, "temperature": 0}, **fields}
    response = httpx.post(server.url + "/generate", json=body, timeout=120)
    assert response.status_code == 200, response.text
    after = counted(server)
    return [b - a for a, b in zip(before, after, strict=True)], response.json()["meta_info"]


def split(rows: list[int]) -> tuple[set[int], set[int]]:
    """Counts up to the cut, which makes entries of every row, and of the decoder layers above."""
    latent = load_model_config(NANO).latent
    assert latent is not None
    return set(rows[: latent.cut + 1]), set(rows[latent.cut + 1 :])


@pytest.mark.parametrize("size", [1, 100, 128, 129, 300, 700])
def test_cold_prompt_runs_all_rows_below_and_one_window_above(server: Server, size: int):
    rows, meta = run(server, PROMPT[:size], cache_salt=f"cold-{size}")
    assert split(rows) == ({size}, {min(size, W)})
    assert (meta["cached_tokens"], meta["replayed_tokens"]) == (0, 0)


@pytest.mark.parametrize(("hit", "fresh"), [(130, 1), (256, 40), (400, 128), (300, 300)])
def test_warm_prompt_runs_one_window_and_the_new_rows(server: Server, hit: int, fresh: int):
    """B7, B17: in decoder layers the last window only, of replayed rows or new ones."""
    salt = f"warm-{hit}-{fresh}"
    run(server, PROMPT[:hit], cache_salt=salt)
    rows, meta = run(server, PROMPT[: hit + fresh], cache_salt=salt)
    assert (meta["cached_tokens"], meta["replayed_tokens"]) == (hit, W)
    assert split(rows) == ({W + fresh}, {W})


def test_request_without_approximations_runs_all_rows_everywhere(server: Server):
    rows, _ = run(server, PROMPT[:300], cache_salt="exact", swa_replay="exact")
    assert split(rows) == ({300}, {300})


def test_decoded_token_is_one_row_in_every_layer(server: Server):
    prompt = {"max_new_tokens": 9, "temperature": 0, "ignore_eos": True}
    rows, _ = run(server, PROMPT[:50], cache_salt="decode", sampling_params=prompt)
    assert split(rows) == ({50 + 8}, {50 + 8})
