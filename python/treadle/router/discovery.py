"""Where lists of replicas come from: a file that changes, or a name with several addresses.

A list that cannot be read changes nothing: replicas are not drained because a file is being written
or a name server is down. An empty list is taken at its word.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ..srt.errors import ConfigError
from ..srt.log import event
from .replicas import Address, Replicas

log = logging.getLogger(__name__)


class Source(Protocol):
    async def read(self) -> list[Address]:
        """The list as it is now. Raises OSError, ValueError."""
        ...


class FileSource:
    """An address a line; empty lines and what follows a # do not count."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> list[Address]:
        text = await asyncio.to_thread(self._path.read_text)
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return [Address.parse(line) for line in lines if line]


class DnsSource:
    """`http://name:port`: a replica for each address of the name."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            name, port = parts.hostname, parts.port
        except ValueError as e:
            raise ConfigError(f"--worker-dns {url}: {e}") from None
        if not name or port is None:
            raise ConfigError(f"--worker-dns {url}: expected a name and a port, name:30000")
        self._scheme, self._name, self._port = parts.scheme, name, port

    async def read(self) -> list[Address]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        hosts = sorted({str(row[4][0]) for row in found})
        urls = [f"[{host}]" if ":" in host else host for host in hosts]
        return [Address(f"{self._scheme}://{host}:{self._port}") for host in urls]


class Follower:
    def __init__(
        self, source: Source, replicas: Replicas, interval_s: float, api_key: str = ""
    ) -> None:
        self._source = source
        self._api_key = api_key
        self._replicas = replicas
        self._interval_s = interval_s
        self._is_first = True

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._interval_s)

    async def look(self) -> None:
        try:
            addresses = await self._source.read()
        except (OSError, ValueError) as e:
            log.warning(event("workers_not_read", {"error": str(e)}))
            return
        before = {replica.name for replica in self._replicas}
        self._replicas.follow(addresses, time.monotonic(), is_first=self._is_first)
        self._is_first = False
        for replica in self._replicas:
            if replica.name not in before:
                replica.api_key = self._api_key
                log.info(event("replica_added", {"replica": replica.name}))


def make_source(file: str, dns: str) -> Source | None:
    """Raises ConfigError."""
    if file and dns:
        raise ConfigError("--worker-file and --worker-dns: only one of them")
    if file:
        return FileSource(Path(file))
    return DnsSource(dns) if dns else None
