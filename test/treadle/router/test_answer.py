"""Answers byte by byte: framing, what is skipped, what is malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.treadle.router.fake_replica import LAST_CHUNK, chunk
from treadle.router.answer import MAX_HEAD_BYTES, Answer, Malformed

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
NAMES = {b"x-empty", b"a", b"content-length", b"transfer-encoding", b"connection"}
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"


def read(*parts: bytes, is_for_head: bool = False) -> Answer:
    answer = Answer(is_for_head=is_for_head)
    for part in parts:
        answer.feed(part)
    return answer


WHOLE = [  # bytes, body, whether the connection may be used again
    (OK + b"Content-Length: 5\r\nX-Empty:\r\nA: b  \r\n\r\nhello", b"hello", True),
    (OK + b"content-length: 0\r\n\r\n", b"", True),
    (CHUNKED + chunk(b"data: 1\n\n") + chunk(b"x") + LAST_CHUNK, b"data: 1\n\nx", True),
    (CHUNKED + b"3;a=b\r\nabc\r\n0\r\nX-Trailer: y\r\nZ: q\r\n\r\n", b"abc", True),
    (INTERIM + CHUNKED + chunk(b"x") + LAST_CHUNK, b"x", True),
    (b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n", b"", False),
    (b"HTTP/1.1 304 Not Modified\r\n\r\n", b"", True),
    (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nhi", b"hi", False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi", False),
]


@pytest.mark.parametrize(("data", "body", "is_fit"), WHOLE)
def test_any_cut_of_an_answer_gives_the_same(data: bytes, body: bytes, is_fit: bool):
    cuts = [[data[:i], data[i:]] for i in range(len(data) + 1)]
    for parts in (*cuts, [data[i : i + 1] for i in range(len(data))]):
        answer = read(*(part for part in parts if part))
        assert b"".join(answer.pieces) == body
        assert (answer.is_whole, answer.leaves_connection_fit) == (True, is_fit)
        assert {name for name, _ in answer.headers} <= NAMES
        assert (b"a", b"b") in answer.headers or b"A: b" not in data


@pytest.mark.parametrize(("data", "body", "is_fit"), WHOLE)
def test_an_answer_cut_short_is_never_whole(data: bytes, body: bytes, is_fit: bool):
    for end in range(len(data)):
        answer = read(data[:end]) if end else Answer()
        answer.feed_end()
        assert not answer.is_whole


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.integers(1, 9))
def test_chunks_give_the_body_however_they_are_cut(parts: list[bytes], size: int):
    data = CHUNKED + b"".join(map(chunk, parts)) + LAST_CHUNK
    answer = read(*(data[i : i + size] for i in range(0, len(data), size)))
    assert b"".join(answer.pieces) == b"".join(parts) and answer.is_whole


def test_without_a_length_a_body_ends_with_its_connection():
    answer = read(OK + b"\r\n", b"ab", b"c")
    assert not answer.is_whole
    answer.feed_end()
    assert answer.is_whole and not answer.leaves_connection_fit
    assert answer.pieces == [b"ab", b"c"]


def test_an_answer_to_head_has_no_body():
    for field in (b"content-length: 5", b"transfer-encoding: chunked", b"x: y"):
        answer = read(OK + field + b"\r\n\r\n", is_for_head=True)
        assert answer.is_whole and not answer.leaves_connection_fit


@pytest.mark.parametrize("data", [WHOLE[0][0], WHOLE[1][0], WHOLE[2][0]])
@pytest.mark.parametrize("more", [b"garbage", b"HTTP/1.1 201 X\r\ncontent-length: 1\r\n\r\nx"])
def test_what_follows_an_answer_is_not_of_it_and_spoils_the_connection(data: bytes, more: bytes):
    for answer in (read(data + more), read(data, more)):
        assert answer.is_whole and not answer.leaves_connection_fit
        assert b"".join(answer.pieces) in (b"hello", b"", b"data: 1\n\nx")
        assert answer.status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n",
        OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"a: b\r\n c: d\r\n\r\n",  # a folded line
        OK + b"a: b\nc: d\r\n\r\n",
        OK + b"a: b\0\r\n\r\n",
        OK + b"a : b\r\n\r\n",
        OK + b"transfer-encoding: gzip\r\n\r\n",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n" * 2 + b"\r\n",
        b"HTTP/1.1 104 X\r\ncontent-length: 1\r\n\r\na" + OK + b"content-length: 1\r\n\r\nb",
        b"HTTP/1.1 104 X\r\ncontent-length: 9\r\n\r\na",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"1\r\nabc",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_malformed(data: bytes):
    for parts in ([data], [data[i : i + 1] for i in range(len(data))]):
        with pytest.raises(Malformed) as error:
            read(*parts)
        assert str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        OK + b"a: " + b"x" * MAX_HEAD_BYTES,
        OK + b"a" * MAX_HEAD_BYTES,
        OK + b"a: b\r\n" * MAX_HEAD_BYTES,
        b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_HEAD_BYTES,
    ],
)
def test_headers_have_a_limit(data: bytes):
    for size in (10_000, len(data)):
        with pytest.raises(Malformed, match="headers"):
            read(*(data[i : i + size] for i in range(0, len(data), size)))


def test_headers_that_come_with_their_body_have_the_limit_too():
    data = OK + b"a: b\r\n" * MAX_HEAD_BYTES + b"content-length: 1\r\n\r\nx"
    with pytest.raises(Malformed, match="headers of more than"):
        read(data)


def test_bytes_of_headers_count_once():
    data = OK + b"a: " + b"x" * (MAX_HEAD_BYTES - 100) + b"\r\ncontent-length: 1\r\n\r\n"
    for cut in (1, 1000, len(data) - 1, len(data)):
        assert read(data[:cut], data[cut:] + b"x").is_whole


@pytest.mark.parametrize("part", [b"0\r\nx: ", b"0\r\n", b"1;", CHUNKED[:-2]])
def test_what_is_not_of_the_body_has_a_limit(part: bytes):
    """A value without an end, trailers without an end, an extension of a chunk, a header."""
    more = b"a: b\r\n" * 2_000 if part == b"0\r\n" else b"y" * 12_000
    answer = read(part if part.startswith(b"HTTP") else CHUNKED + part)
    with pytest.raises(Malformed, match="more than"):
        for _ in range(6):
            answer.feed(more)


def test_a_body_may_come_in_any_number_of_small_pieces():
    answer = read(CHUNKED)
    for _ in range(MAX_HEAD_BYTES // 8):
        answer.feed(b"1;aaaaaaaa")
        answer.feed(b"\r\nx\r\n")
    assert len(answer.pieces) == MAX_HEAD_BYTES // 8
