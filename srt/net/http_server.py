"""uvicorn, configured: keep-alive for agents, no access log, no signal handlers of its own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from ..config import NetSection
from ..errors import ConfigError

BACKLOG = 2048
LAST_ANSWERS_S = 1  # for bodies to leave when the server stops


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port. Raises ConfigError.

    It listens at once: until then, the kernel would give the same port to a second server.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as e:
        raise ConfigError(f"--host {host}: {e.strerror}") from None
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as e:
        sock.close()
        raise ConfigError(f"cannot listen on --host {host} --port {port}: {e.strerror}") from None
    return sock


class HttpServer(uvicorn.Server):
    """`should_exit = True` ends it within `LAST_ANSWERS_S` and a little."""

    def __init__(self, app: ASGIApp, net: NetSection) -> None:
        """`net` is resolved."""
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=net.log_level_http,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                root_path=net.root_path,
                ssl_keyfile=net.ssl_keyfile or None,
                ssl_certfile=net.ssl_certfile or None,
                timeout_keep_alive=net.keep_alive_s,
                timeout_graceful_shutdown=LAST_ANSWERS_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has handlers of its own; uvicorn's would raise the signal once more."""
        yield
