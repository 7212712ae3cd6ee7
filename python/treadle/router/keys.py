"""Which session a request belongs to: where its key is looked for, and the key.

A key is 64 bits of a hash, the same in every process, so several routers agree without talking.
Values come from clients and are not trusted: they are hashed before anything else is done with
them, and one that is empty or too long is passed over, never an error. Authorization, cookies and
addresses are no keys: they would bind a whole tenant to one replica.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

MAX_VALUE_BYTES = 256
SESSION_HEADERS = (
    "x-session-id",
    "x-smg-routing-key",
    "x-routing-key",
    "x-session-affinity",
    "x-dynamo-session-id",
    "x-correlation-id",
)
PARENT_HEADERS = ("x-parent-session-id", "x-dynamo-parent-session-id")
SOURCES = ("header", "body", "prompt_cache_key", "user", "previous_response_id", "derived")
DEFAULT_SOURCES = tuple(source for source in SOURCES if source != "user")  # a user has many agents

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class KeyRules:
    """`sources` in order, the first that has a value wins. `namespace` parts tenants, as it parts
    their cached prefixes.
    """

    sources: tuple[str, ...] = DEFAULT_SOURCES
    headers: tuple[str, ...] = SESSION_HEADERS
    parent_headers: tuple[str, ...] = PARENT_HEADERS


@dataclass(frozen=True, slots=True)
class Keys:
    """`key` None: the request belongs to no session. `parent`: the session that it was forked
    from. `source`: which rule found the key.
    """

    key: int | None = None
    parent: int | None = None
    source: str = "none"


def hash_key(namespace: str, kind: str, value: bytes) -> int:
    """64 bits; fields are separated, so no two triples are hashed alike."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (namespace.encode(), kind.encode()):
        digest.update(len(part).to_bytes(4, "little") + part)
    digest.update(value)
    return int.from_bytes(digest.digest(), "little")


def header_keys(headers: Mapping[str, str], rules: KeyRules, namespace: str = "") -> Keys:
    """What headers alone say. `headers` has lower-case names."""
    parent = _from_headers(headers, rules.parent_headers, namespace)
    key = None
    if "header" in rules.sources:
        key = _from_headers(headers, rules.headers, namespace)
    return Keys(key, parent, "header" if key is not None else "none")


def find_keys(
    headers: Mapping[str, str], body: Json | None, rules: KeyRules, namespace: str = ""
) -> Keys:
    """The same with a parsed body, None when it is no JSON object."""
    known = header_keys(headers, rules, namespace)
    fields = body or {}
    parent = known.parent
    if parent is None:
        parent = _named(namespace, "session", fields.get("parent_session_id"))
    for source in rules.sources:
        key = known.key if source == "header" else _from_body(source, fields, namespace)
        if key is not None:
            return Keys(key, parent, source)
    return Keys(None, parent)


def _from_headers(headers: Mapping[str, str], names: Sequence[str], namespace: str) -> int | None:
    for name in names:
        key = _named(namespace, "session", headers.get(name))
        if key is not None:
            return key
    return None


def _from_body(source: str, fields: Json, namespace: str) -> int | None:
    if source == "body":
        return _body_session(fields, namespace)
    if source == "derived":
        return _derived(fields, namespace)
    return _named(namespace, source, fields.get(source))


def _body_session(fields: Json, namespace: str) -> int | None:
    """The same kind as headers: a client may name its session now here, now there."""
    inner = [fields.get("session_params"), fields.get("vllm_xargs")]
    values = [part.get("session_id") for part in inner if isinstance(part, dict)]
    for value in (values[0] if values else None, fields.get("session_id"), *values[1:]):
        key = _named(namespace, "session", value)
        if key is not None:
            return key
    return None


def _named(namespace: str, kind: str, value: object) -> int | None:
    if not isinstance(value, str):
        return None
    data = value.strip().encode(errors="surrogatepass")
    return hash_key(namespace, kind, data) if 0 < len(data) <= MAX_VALUE_BYTES else None


def _derived(fields: Json, namespace: str) -> int | None:
    """From the first turn's texts, once there is a second turn: a first one has nothing cached."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return None
    roles = [m.get("role") for m in messages]
    if "assistant" not in roles or "user" not in roles:
        return None
    head = [m for m in messages if m.get("role") in ("system", "developer")]
    first = messages[roles.index("user")]
    said = [fields.get(name) for name in ("model", "tools", "system")]
    try:
        text = orjson.dumps([*said, head, first.get("content")], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested deeper than it writes, though not than it reads
        return None
    return hash_key(namespace, "derived", text)
