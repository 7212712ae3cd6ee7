"""Lists of replicas that change (rule A18)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from treadle.router.discovery import DnsSource, FileSource, Follower, make_source
from treadle.router.fleet import Fleet
from treadle.router.ledger import LoadRules
from treadle.router.lifecycle import LifeRules
from treadle.router.replicas import Address, Replicas
from treadle.srt.errors import ConfigError


def names(replicas: Replicas) -> list[str]:
    return [replica.name for replica in replicas]


async def test_a_file_is_followed_and_a_broken_one_changes_nothing(tmp_path: Path):
    path = tmp_path / "workers"
    path.write_text("http://a:1\n\n# old\nb:1  # new\n")
    replicas = Replicas(Fleet(), LifeRules(), LoadRules())
    follower = Follower(FileSource(path), replicas, 1.0, "key")
    await follower.look()
    assert names(replicas) == ["http://a:1", "http://b:1"]
    assert {replica.api_key for replica in replicas} == {"key"}
    path.write_text("http://a:1\nftp://x\n")
    await follower.look()
    path.unlink()
    await follower.look()
    assert len(replicas) == 2
    path.write_text("http://b:1\nhttp://c:1")
    await follower.look()
    replicas.refresh(0.0)
    assert names(replicas) == ["http://b:1", "http://c:1"]


async def test_a_name_stands_for_its_addresses(monkeypatch: pytest.MonkeyPatch):
    async def getaddrinfo(name, port, **options):
        assert (name, port) == ("workers.test", 30000)
        rows = [("10.0.0.2", port), ("10.0.0.1", port), ("10.0.0.1", port), ("fd00::1", port)]
        return [(0, 0, 0, "", row) for row in rows]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    found = await DnsSource("workers.test:30000").read()
    hosts = ["10.0.0.1", "10.0.0.2", "[fd00::1]"]
    assert found == [Address(f"http://{host}:30000") for host in hosts]


@pytest.mark.parametrize("url", ["", "workers", "http://workers", "http://w:x"])
def test_a_name_needs_a_port(url: str):
    with pytest.raises(ConfigError, match="--worker-dns"):
        DnsSource(url)


def test_one_source_at_most():
    assert make_source("", "") is None
    with pytest.raises(ConfigError):
        make_source("f", "d:1")
