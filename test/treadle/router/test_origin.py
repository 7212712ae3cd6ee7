"""What a replica's URL says."""

from __future__ import annotations

import pytest

from treadle.router.origin import Origin


@pytest.mark.parametrize(
    ("url", "host", "port", "is_tls", "authority", "prefix"),
    [
        ("http://a:30000", "a", 30000, False, b"a:30000", ""),
        ("http://a", "a", 80, False, b"a", ""),
        ("https://a:443/v/", "a", 443, True, b"a", "/v"),
        ("https://a.b.:8443/x/y", "a.b.", 8443, True, b"a.b.:8443", "/x/y"),
        ("http://[::1]:7", "::1", 7, False, b"[::1]:7", ""),
        ("http://a/p \u00e9", "a", 80, False, b"a", "/p%20%C3%A9"),
        ("http://b\u00fccher:7", "xn--bcher-kva", 7, False, b"xn--bcher-kva:7", ""),
    ],
)
def test_urls(url: str, host: str, port: int, is_tls: bool, authority: bytes, prefix: str):
    assert Origin.parse(url) == Origin(host, port, is_tls, authority, prefix)


@pytest.mark.parametrize(
    "url", ["http://:80", "http://a:99999", "ftp://a", "a:80", "http://[x", "http://a..b"]
)
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(ValueError):
        Origin.parse(url)
