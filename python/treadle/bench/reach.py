"""Connections to servers, and the tokenizer that prompts are measured with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aiohttp
from tokenizers import Tokenizer

from .control import Control
from .vocabulary import Encode

SILENCE_S = 6 * 3600.0  # an overloaded server may let a request wait for long
READ_BYTES = 1 << 20


def open_http(headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """A connection for each request: some servers (llama.cpp's) close one after its answer without
    saying so, and a request that was sent on it just then would be lost."""
    return aiohttp.ClientSession(
        # the load decides what is in flight
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S),
        headers=headers,
        read_bufsize=READ_BYTES,
    )


def pairs(texts: list[str]) -> dict[str, str]:
    """Headers from `K=V`. Raises ValueError."""
    for text in texts:
        if "=" not in text:
            raise ValueError(f"--header {text}: expected K=V")
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def encoder(path: Path | None, control: Control) -> Encode:
    """Of a tokenizer.json, or of the server. Raises OSError, ValueError."""
    if path is None:

        async def ask(text: str, add_special: bool) -> list[int] | None:
            return await control.tokenize(text, add_special=add_special)

        return ask
    file = path / "tokenizer.json" if path.is_dir() else path
    text = file.read_text()
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # of that library, which has no other
        raise ValueError(f"--tokenizer {file}: {error}") from None

    async def encode(text: str, add_special: bool) -> list[int] | None:
        return list(tokenizer.encode(text, add_special_tokens=add_special).ids)

    return encode
