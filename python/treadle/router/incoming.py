"""A client's request as the router sees it: what it says of session, id and target.

The body is kept as the bytes that came and is sent on as such. It is parsed only when something in
it may matter: when no header names the session (or the policy compares texts), or when it holds the
words `"rid"` or `"session_params"`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from .keys import KeyRules, Keys, find_keys, header_keys
from .origin import quoted
from .prompt_text import prompt_text

MAX_ID_BYTES = 256
SESSIONS = frozenset({"/open_session", "/close_session"})
REPEATABLE = frozenset(
    {
        "/generate",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
        "/encode",
        "/classify",
        "/tokenize",
        "/v1/tokenize",
        "/detokenize",
        "/v1/detokenize",
        "/parse_function_call",
        "/separate_reasoning",
    }
)

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ReadRules:
    """`wants_text`: the policy compares prompts. `is_isolated`: sessions of different API keys
    never are the same.
    """

    keys: KeyRules
    wants_text: bool = False
    is_isolated: bool = False


@dataclass(frozen=True, slots=True)
class Incoming:
    """`rids`: by which it may be aborted, its own first. `session`: of a server-side session."""

    method: str
    target: str  # path and query as they came
    path: str
    raw_headers: RawHeaders
    headers: Mapping[str, str]  # lower-case names
    body: bytes
    keys: Keys
    rids: tuple[str, ...]
    session: str | None
    text: bytes
    has_own_rid: bool = False  # in its body

    @property
    def is_repeatable(self) -> bool:
        """Whether a second attempt does no harm."""
        if self.session is not None:
            return False
        return self.method in ("GET", "HEAD") or self.path in REPEATABLE


def lower_headers(raw: RawHeaders) -> dict[str, str]:
    """The first of each name."""
    headers: dict[str, str] = {}
    for name, value in raw:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return headers


def read_incoming(
    scope: Mapping[str, object], raw: RawHeaders, body: bytes, rules: ReadRules
) -> Incoming:
    """`scope`: the ASGI scope."""
    method, path = str(scope["method"]), str(scope["path"])
    query = scope.get("query_string") or b""
    assert isinstance(query, bytes)
    headers = lower_headers(raw)
    namespace = headers.get("authorization", "") if rules.is_isolated else ""
    keys = header_keys(headers, rules.keys, namespace)
    fields = _parse(body) if _must_parse(keys, body, rules) else None
    if fields is not None and keys.key is None:
        keys = find_keys(headers, fields, rules.keys, namespace)
    rids = _body_rids(fields)
    return Incoming(
        method=method,
        target=_raw_path(scope, path) + (f"?{query.decode('latin-1')}" if query else ""),
        path=path,
        raw_headers=raw,
        headers=headers,
        body=body,
        keys=keys,
        rids=rids or (_given_name(headers, path),),
        session=_session(fields, path),
        text=prompt_text(fields) if rules.wants_text and fields is not None else b"",
        has_own_rid=bool(rids),
    )


def _raw_path(scope: Mapping[str, object], path: str) -> str:
    raw = scope.get("raw_path")
    return raw.decode("latin-1") if isinstance(raw, bytes) else quoted(path)


def _must_parse(keys: Keys, body: bytes, rules: ReadRules) -> bool:
    if not body:
        return False
    if keys.key is None or rules.wants_text:
        return True
    return b'"rid"' in body or b'"session_params"' in body


def _parse(body: bytes) -> dict[str, object] | None:
    """None for what is no JSON object; the replica will say what is wrong with it."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def _body_rids(fields: Mapping[str, object] | None) -> tuple[str, ...]:
    asked = (fields or {}).get("rid")
    if isinstance(asked, str) and asked:
        return (asked,)
    if isinstance(asked, list) and all(isinstance(rid, str) for rid in asked):
        return tuple(asked)
    return ()


def _given_name(headers: Mapping[str, str], path: str) -> str:
    """The client's word for the request, or a fresh one."""
    given = headers.get("x-rid") or headers.get("x-request-id") or ""
    if 0 < len(given) <= MAX_ID_BYTES and given.isascii() and given.isprintable():
        return given
    return ("msg_" if path == "/v1/messages" else "") + uuid.uuid4().hex


def _session(fields: Mapping[str, object] | None, path: str) -> str | None:
    """The server-side session that a request opens, closes or goes on with."""
    if fields is None:
        return None
    if path in SESSIONS:
        value = fields.get("session_id")
        return value if isinstance(value, str) else ""
    inner = fields.get("session_params")
    value = inner.get("id") if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value else None
