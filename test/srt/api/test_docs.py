"""The two routes of the document."""

from __future__ import annotations

from test.serving import Bench, serving
from treadle.srt.config import NetSection


async def test_document_and_page_are_served(bench: Bench):
    document = await bench.client.get("/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.json()["openapi"].startswith("3.1")
    assert document.json()["info"]["version"] == "1.2.3"
    page = await bench.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/chat/completions" in page.text


async def test_document_needs_the_key_as_every_route():
    async with serving(net=NetSection(api_key="key")) as bench:
        assert (await bench.client.get("/docs")).status_code == 401
        assert (await bench.client.get("/openapi.json")).status_code == 401
