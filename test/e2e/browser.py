"""A headless Chromium of this machine, told what to do over its debugging pipe.

commands  ->  fd 3 of the browser      answers and events  <-  fd 4      JSON, each ended by NUL
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

WAIT_S = 60.0
# A shell cannot: of its redirections only those of numbers below ten are portable.
START = """
import fcntl, os, sys
down, up = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(down, 3)
os.dup2(up, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"),
)


def find_browser() -> str | None:
    """The first that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser of its own. Raises RuntimeError for what the page's script throws."""

    def __init__(self, program: str, width: int = 1280, height: int = 1000) -> None:
        self._folder = tempfile.mkdtemp(prefix="browser-")
        down, self._out = os.pipe()
        self._in, up = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self._folder}", f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(down), str(up), program, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(down, up),
        )
        os.close(down)
        os.close(up)
        self._session: str | None = None
        self._numbers = count(1)
        self._rest = b""
        self.requested: list[str] = []  # every URL that the page has asked for
        self.errors: list[str] = []  # what its script has thrown
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        opened = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = opened["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str) -> None:
        """Returns when the page is there."""
        self._send("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Of an expression in the page, as JSON holds it; of a promise, what it becomes."""
        found = self._send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The first value that is true. Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_S
        while not (value := self.value(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression} is never true; the page threw {self.errors}")
            select.select([self._in], [], [], 0.05)
        return value

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self._send("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _send(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requested.append(event["params"]["request"]["url"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(event["params"]["exceptionDetails"]["text"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], WAIT_S)[0]:
                raise TimeoutError("the browser says nothing")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
