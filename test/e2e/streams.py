"""Lines of a streamed response, cut at line feeds only.

httpx's own `iter_lines` also cuts at U+2028, U+0085 and others, which JSON may hold as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx


def iter_lines(response: httpx.Response) -> Iterator[str]:
    rest = b""
    for data in response.iter_bytes():
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in whole)
    assert rest == b""


async def aiter_lines(response: httpx.Response) -> AsyncIterator[str]:
    rest = b""
    async for data in response.aiter_bytes():
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode()
    assert rest == b""
