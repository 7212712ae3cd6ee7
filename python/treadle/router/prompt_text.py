"""The text of a prompt as far as a router needs it: what a cache-aware policy compares.

In the order of templates: system, tools, then the whole list of messages. A first message alone is
the same for every agent of a kind and would send all of them to one replica. The text of a turn
begins with that of the turn before.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

_PLAIN = ("prompt", "text", "input_ids", "input")


def prompt_text(fields: Mapping[str, object]) -> bytes:
    """b"" where there is none, or one nested so deep that it cannot be written."""
    try:
        return _text(fields)
    except orjson.JSONEncodeError:
        return b""


def _text(fields: Mapping[str, object]) -> bytes:
    messages = fields.get("messages")
    if isinstance(messages, list):
        head = [fields[name] for name in ("system", "tools") if fields.get(name)]
        return b"\n".join(orjson.dumps(part) for part in (*head, *messages))
    for name in _PLAIN:
        value = fields.get(name)
        if isinstance(value, str):
            return value.encode(errors="surrogatepass")
        if value:
            return orjson.dumps(value)
    return b""
