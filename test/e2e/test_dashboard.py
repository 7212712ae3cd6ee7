"""The dashboard in a browser: its numbers are those of `/metrics`, under load and at rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from test.e2e.browser import Browser, find_browser
from test.e2e.conftest import StartServer
from test.e2e.prometheus import total
from test.e2e.running import held
from test.e2e.server import Server
from test.tiny import tiny_gemma3

PROGRAM = find_browser()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; sh .ci/install-browser"),
]

HOSTILE = "<img src=x onerror=boom()>"
ALL_NUMBERS = """Object.fromEntries([...document.querySelectorAll('[data-metric]')].map(
    place => [place.dataset.metric, place.dataset.value]))"""


@contextmanager
def dashboard(server: Server) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as browser:
        browser.open(server.url + "/dashboard")
        yield browser
        assert browser.errors == []
        assert {url.removeprefix(server.url) for url in browser.requested} == {
            "/dashboard", "/dashboard/data",
        }  # fmt: skip


def next_poll(browser: Browser) -> None:
    """Returns when the page shows a moment after this one. It need not wait for its next turn."""
    browser.wait(f"poll().then(() => history.length && history.at(-1).time > {time.time()})")


def as_exported(metrics: str, name: str) -> float:
    """`treadle:pages{state=free}` as Prometheus writes it."""
    plain, _, label = name.partition("{")
    wanted = label.rstrip("}").replace("=", '="')
    return total(metrics, f"{plain}|{wanted}" if label else plain)


def cells(browser: Browser, table: str) -> list[list[str]]:
    """Of the rows below its head."""
    return browser.value(
        f"[...document.getElementById('{table}').rows].slice(1)"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


@pytest.fixture(scope="module")
def server(serve_module: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return serve_module(
        str(tiny_gemma3(tmp_path_factory.mktemp("model"))),
        *("--max-running-requests", "2", "--max-warm-windows", "0", "--num-threads", "1"),
    )


def test_page_shows_the_numbers_of_the_metrics_page_while_requests_run(server: Server):
    """The server's first requests. Two run and three wait, and the worker is held, so that both
    pages show the same moment."""
    with httpx.Client(base_url=server.url, timeout=60) as http, ThreadPoolExecutor(3) as threads:
        prompt, other = list(range(5, 205)), [*range(5, 155), *range(205, 255)]
        sampling = {"max_new_tokens": 1, "temperature": 0}
        body = {"input_ids": prompt, "session_id": HOSTILE, "sampling_params": sampling}
        for ids in (prompt, other):  # the second hits, and replays
            http.post("/generate", json={**body, "input_ids": ids}).raise_for_status()
        runs = [{"rid": f"r{i}", "text": f"{i} threads"} for i in range(2)]
        with held(server, http, *runs) as running, dashboard(server) as browser:
            waiting = [
                threads.submit(http.post, "/generate", json={**body, "rid": f"w{i}"})
                for i in range(3)
            ]
            browser.wait("poll().then(() => history.at(-1).metrics['sglang:num_queue_reqs'] == 3)")
            shown = browser.value(ALL_NUMBERS)
            metrics = http.get("/metrics").text
            assert {k: float(v) for k, v in shown.items()} == {
                name: as_exported(metrics, name) for name in shown
            }
            assert len(shown) > 12
            assert float(shown["sglang:num_running_reqs"]) == 2
            assert float(shown["treadle:replay_rows_total"]) > 0
            assert float(shown["treadle:window_slots{state=taken}"]) == 2
            assert sorted(row[:3] for row in cells(browser, "requests")) == [
                ["r0", "-", "running"], ["r1", "-", "running"],
                *([f"w{i}", HOSTILE, "waiting"] for i in range(3)),
            ]  # fmt: skip
            (session,) = cells(browser, "sessions")
            assert session[:5] == [HOSTILE, "0", "3", "2", "400"]
            boxes = browser.value("document.querySelectorAll('#tree rect').length")
            assert boxes == as_exported(metrics, "treadle:tree_nodes") == 3
            assert browser.value("document.images.length") == 0
        assert all(one.result().status_code == 200 for one in waiting)
        assert all(one.text() for one in running)


def test_counters_on_the_page_lie_between_scrapes_before_and_after(server: Server):
    """Nothing is held: sessions go on while the page is read."""
    stop = threading.Event()

    def agent(name: int) -> None:
        prompt = list(range(5, 85))
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while not stop.is_set():
                prompt = [*prompt[:300], 5 + name]
                sampling = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
                body = {"input_ids": prompt, "session_id": f"s{name}", "sampling_params": sampling}
                prompt += http.post("/generate", json=body).raise_for_status().json()["output_ids"]

    with ThreadPoolExecutor(4) as threads, httpx.Client(base_url=server.url, timeout=60) as http:
        agents = [threads.submit(agent, name) for name in range(4)]
        try:
            with dashboard(server) as browser:
                next_poll(browser)
                for _ in range(3):
                    before = http.get("/metrics").text
                    next_poll(browser)
                    shown = browser.value(ALL_NUMBERS)
                    after = http.get("/metrics").text
                    for name in filter(lambda name: "_total" in name, shown):
                        low, high = as_exported(before, name), as_exported(after, name)
                        assert low <= float(shown[name]) <= high
                pages = [float(v) for k, v in shown.items() if k.startswith("treadle:pages")]
                assert sum(pages) == as_exported(after, "sglang:num_pages")
                # sooner or later tokens are generated, for all four
                rate = "+document.querySelector('[data-rate]').dataset.value"
                browser.wait(f"poll().then(() => {rate} > 0)")
                while not {f"s{i}" for i in range(4)} <= {r[0] for r in cells(browser, "sessions")}:
                    next_poll(browser)
        finally:
            stop.set()
        for one in agents:
            one.result()


def test_page_asks_for_the_key_that_its_data_needs(serve: StartServer, tmp_path: Path):
    server = serve(str(tiny_gemma3(tmp_path)), "--api-key", "secret", "--num-threads", "1")
    with dashboard(server) as browser:
        browser.wait("document.getElementById('state').textContent.includes('key')")
        assert browser.value("document.getElementById('key').hidden") is False
        browser.value(
            "document.querySelector('#key input').value = 'secret';"
            "document.getElementById('key').requestSubmit()"
        )
        browser.wait("document.documentElement.dataset.polls >= 1")
        assert browser.value("document.getElementById('key').hidden") is True
