"""One answer of a replica, from the bytes that come: its status, its headers, pieces of its body.

Knows no connection. An answer is whole only by its own framing: as many bytes as its content-length
says, a last chunk, or the end of the connection where it has neither. Interim (1xx) answers are
skipped, trailers dropped; whatever follows an answer that is whole makes its connection unfit for
another. A body may be endless; headers, trailers and what stands between chunks may not.

The parser appends to `pieces` itself, so that a chunk costs no call of Python.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpResponseParser

MAX_HEAD_BYTES = 1 << 16  # of the final and all interim answers together
MAX_BARREN_BYTES = MAX_HEAD_BYTES  # that come without a byte of a body
_WITHOUT_BODY = frozenset({204, 304})
RawHeader = tuple[bytes, bytes]


class Malformed(Exception):
    """Bytes that are no answer."""


class Answer:
    def __init__(self, *, is_for_head: bool = False) -> None:
        """`is_for_head`: of a HEAD request, so without the body that its headers tell of."""
        self.status = 0  # until all headers are there
        self.headers: list[RawHeader] = []  # names in lower case
        self.pieces: list[bytes] = []  # of the body; whoever takes them empties the list
        self.is_whole = False
        self.leaves_connection_fit = False  # for another exchange; says something once it is whole
        self._is_for_head = is_for_head
        self._ends_with_connection = False
        self._is_interim = False
        self._header_bytes = 0
        self._barren_bytes = 0
        self.on_body = self.pieces.append
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises Malformed."""
        if self._parser is None:
            self.leaves_connection_fit = False
            return
        num_pieces = len(self.pieces)
        try:
            self._parser.feed_data(data)
        except HttpParserError as e:
            if not self.is_whole:
                raise Malformed(_reason(e)) from None
            self.leaves_connection_fit = False
        if self.is_whole:
            self.stop()
        else:
            self._check_progress(len(data), is_barren=len(self.pieces) == num_pieces)

    def feed_end(self) -> None:
        """The other side will say nothing more; whether the answer is whole is known now."""
        self.leaves_connection_fit = False
        self.is_whole = self.is_whole or (bool(self.status) and self._ends_with_connection)
        self.stop()

    def stop(self) -> None:
        """Nothing more will be read. The parser refers back to this, so it is let go."""
        self._parser = None

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise Malformed("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEAD_BYTES:
            raise Malformed(f"headers of more than {MAX_HEAD_BYTES} bytes")
        self.headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == 101 or not 100 <= status < 600:
            raise Malformed(f"status {status} was not asked for")
        self._is_interim = status < 200
        if self._is_interim:
            self.headers.clear()
            return
        if self.pieces:
            raise Malformed("an interim answer with a body")
        has_body, has_length = status not in _WITHOUT_BODY, _has_length(self.headers)
        self._ends_with_connection = has_body and not has_length
        # A length of a body that the status rules out: some send that body nevertheless.
        self.leaves_connection_fit = self._parser.should_keep_alive() and has_body is has_length
        self.status = status
        if self._is_for_head:
            self.is_whole = True
            raise Malformed("stops the parser, which would wait for a body")

    def on_message_complete(self) -> None:
        if not self._is_interim:
            self.is_whole = True

    def _check_progress(self, num_bytes: int, *, is_barren: bool) -> None:
        if not is_barren:
            if not self.status:
                raise Malformed("an interim answer with a body")
            self._barren_bytes = 0
            return
        self._barren_bytes += num_bytes
        if self._barren_bytes > MAX_BARREN_BYTES:
            what = "between pieces of a body" if self.status else "of headers"
            raise Malformed(f"more than {MAX_BARREN_BYTES} bytes {what}")


def _has_length(headers: list[RawHeader]) -> bool:
    """Whether an end of the connection is not the end of the body. Raises Malformed."""
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and codings != [b"chunked"]:
        raise Malformed("a transfer coding that was not asked for")
    return bool(codings) or any(name == b"content-length" for name, _ in headers)


def _reason(error: HttpParserError) -> str:
    own = error.__context__
    return str(own if isinstance(own, Malformed) else error) or type(error).__name__
