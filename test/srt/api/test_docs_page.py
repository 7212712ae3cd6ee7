"""The page shows the whole document, escaped, and needs nothing from outside."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import msgspec

from treadle.srt.api import endpoint_table as table
from treadle.srt.api.docs_page import render
from treadle.srt.api.endpoint import Endpoint, Reply
from treadle.srt.api.openapi import make_document

ENDPOINTS = [value for value in vars(table).values() if isinstance(value, Endpoint)]


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[tuple[str, str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name in ("src", "href", "action", "srcset", "data"):
                self.targets.append((tag, value or ""))


def read(document: dict[str, Any]) -> tuple[str, Links]:
    text, links = render(document), Links()
    links.feed(text)
    return text, links


def test_page_loads_nothing_and_its_links_lead_somewhere():
    text, links = read(make_document(ENDPOINTS, "1"))
    assert {tag for tag, _ in links.targets} == {"a"}
    assert {"link", "img", "iframe", "object"}.isdisjoint(links.tags)
    assert "url(" not in text
    assert "@import" not in text
    inner = {target[1:] for _, target in links.targets if target.startswith("#")}
    assert inner <= links.ids
    assert [t for _, t in links.targets if not t.startswith("#")] == ["openapi.json"]


def test_every_operation_field_and_example_is_shown():
    document = make_document(ENDPOINTS, "1")
    text, _ = read(document)
    for path in document["paths"]:
        assert f"<code>{path}</code>" in text
    for schema in document["components"]["schemas"].values():
        for field in schema.get("properties", {}):
            assert f"<td><code>{field}</code></td>" in text
    assert "curl http://localhost:30000/v1/chat/completions" in text


def test_text_of_the_document_is_escaped():
    class Odd(msgspec.Struct):
        """<script>alert(1)</script>"""

        a: str = "<b>"

    endpoint = Endpoint(
        ("POST",), ("/<i>",), "<u>", "<s>", "<q>", request=Odd, example={"a": "'<em>"},
        replies=(Reply(what="<x>"),),
    )  # fmt: skip
    _, links = read(make_document([endpoint], "<v>"))
    assert {"i", "u", "s", "q", "em", "x", "v"}.isdisjoint(links.tags)
    assert links.tags.count("script") == 1
    assert links.tags.count("b") == 1
