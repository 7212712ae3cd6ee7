"""The OpenAPI document as one HTML page that loads nothing: no script, style or font from outside.

Everything shown comes from the document; all of its text is escaped.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any

Node = dict[str, Any]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
h2{margin:2.2rem 0 .6rem}details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0}
summary{cursor:pointer;padding:.45rem .7rem}details>div{padding:.2rem .9rem .8rem}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--soft);padding:.7rem;overflow:auto}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top}
b.m{display:inline-block;min-width:4.2rem}
input{font:inherit;padding:.4rem .6rem;width:100%;box-sizing:border-box}.q{opacity:.7}
"""
SCRIPT = """
const box=document.getElementById('find');
box.addEventListener('input',()=>{for(const d of document.querySelectorAll('details'))
d.hidden=!d.textContent.toLowerCase().includes(box.value.toLowerCase())});
const open=()=>{const d=document.getElementById(location.hash.slice(1));if(d)d.open=true};
addEventListener('hashchange',open);open();
"""


def render(document: Node) -> str:
    title = f"{document['info']['title']} {document['info']['version']}"
    return "".join(
        (
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>",
            '<p>Made from <a href="openapi.json">openapi.json</a>.</p>',
            '<input id="find" type="search" placeholder="Find" aria-label="Find">',
            *_operations(document),
            "<h2>Types</h2>",
            *(_component(*item) for item in document["components"]["schemas"].items()),
            f"<script>{SCRIPT}</script></html>",
        )
    )


def _operations(document: Node) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            section = by_tag.setdefault(operation["tags"][0], [])
            section.append(_operation(path, method, operation))
    for tag, operations in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from operations


def _operation(path: str, method: str, operation: Node) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    parts = [f"<p>{_prose(operation['description'])}</p>" if operation["description"] else ""]
    if operation.get("parameters"):
        rows = [
            (p["name"], _type(p["schema"]), f"{p['in']}. {p.get('description', '')}")
            for p in operation["parameters"]
        ]
        parts.append(_table(("parameter", "type", "meaning"), rows))
    if body is not None:
        parts.append(f"<p>Body: {_type(body['schema'])}</p>")
    parts.append(f"<pre>{escape(_curl(path, method, body))}</pre>")
    answers = [_answer(status, r) for status, r in operation["responses"].items()]
    parts.append(_table(("status", "body", "meaning"), answers))
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><b class="m">{method.upper()}'
        f"</b> <code>{escape(path)}</code> <span class=q>{escape(operation['summary'])}</span>"
        f"</summary><div>{''.join(parts)}</div></details>"
    )


def _curl(path: str, method: str, body: Node | None) -> str:
    command = "curl" if method in ("get", "post") else f"curl -X {method.upper()}"
    if body is None:
        return f"{command}{' -X POST' if method == 'post' else ''} http://localhost:30000{path}"
    data = shlex.quote(json.dumps(body["example"]))
    return (
        f"{command} http://localhost:30000{path} \\\n"
        f"  -H 'content-type: application/json' \\\n  -d {data}"
    )


def _answer(status: str, response: Node) -> tuple[str, str, str]:
    bodies = []
    for media, content in response.get("content", {}).items():
        kind = content.get("x-event", content["schema"])
        bodies.append(f"<code>{escape(media)}</code> {_type(kind)}")
    return status, "<br>".join(bodies), response["description"]


def _component(name: str, schema: Node) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (field, _type(inner), _meaning(inner, is_required=field in required))
        for field, inner in schema.get("properties", {}).items()
    ]
    about = f"<p>{_prose(schema.get('description', ''))}</p>"
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary><div>'
        f"{about}{_table(('field', 'type', 'meaning'), rows)}</div></details>"
    )


def _meaning(schema: Node, *, is_required: bool) -> str:
    parts = ["Required."] if is_required else []
    if schema.get("description"):
        parts.append(schema["description"])
    if schema.get("default") is not None:
        parts.append(f"Default {json.dumps(schema['default'])}.")
    return " ".join(parts)


def _type(schema: Node) -> str:
    """The type in short, as HTML; references are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of ({_type(schema.get('items') or {})})"
    return escape(str(schema.get("type", "any"))) + _range(schema)


def _range(schema: Node) -> str:
    signs = {"minimum": "&ge;", "exclusiveMinimum": "&gt;", "maximum": "&le;"}
    found = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return f" ({', '.join(found)})" if found else ""


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    """The first column is code and the last one prose; the middle one is HTML already."""
    if not rows:
        return ""
    heads = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{_prose(text)}</td></tr>"
        for name, kind, text in rows
    )
    return f"<table><tr>{heads}</tr>{lines}</table>"


def _prose(text: str) -> str:
    """Escaped, with `code` marks."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))
