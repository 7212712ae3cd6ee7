"""Where a replica listens, read from its URL, and the path that goes before those of requests."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

PORTS = {"http": 80, "https": 443}
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Origin:
    host: str
    port: int
    is_tls: bool
    authority: bytes  # for the header `host`
    prefix: str = ""  # without a slash at the end

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{url!r} has no host")
        host = parts.hostname
        if ":" not in host:
            host = host.encode("idna").decode()
        port = PORTS[parts.scheme] if parts.port is None else parts.port
        name = f"[{host}]" if ":" in host else host
        shown = name if port == PORTS[parts.scheme] else f"{name}:{port}"
        return cls(
            host, port, parts.scheme == "https", shown.encode(), quoted(parts.path.rstrip("/"))
        )

    @property
    def key(self) -> tuple[str, int, bool]:
        """Equal for origins that may share connections."""
        return self.host, self.port, self.is_tls


def quoted(target: str) -> str:
    """With everything in it that a request's first line cannot hold as percent codes."""
    return quote(target, safe=_VISIBLE)
