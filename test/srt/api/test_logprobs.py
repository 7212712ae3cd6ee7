"""The three spellings of log-probabilities."""

from __future__ import annotations

import math

from test.serving import byte_tokenizer
from treadle.srt.api.logprobs import FLOOR, CompletionLogprobs, Triples, chat_content
from treadle.srt.messages import TokenLogprob, Usage
from treadle.srt.tokenizer.choice import Delta

TOKENIZER = byte_tokenizer()
EURO = "€".encode()


def delta(*entries: tuple[int, TokenLogprob | None]) -> Delta:
    ids, logprobs = tuple(e[0] for e in entries), tuple(e[1] for e in entries)
    return Delta(0, "", ids, logprobs, Usage(1, len(ids), 0, 0), None)


def test_bytes_are_exact_where_the_text_cannot_be():
    (entry,) = chat_content(TOKENIZER, delta((EURO[0], TokenLogprob(-1.0))))
    assert entry["bytes"] == [EURO[0]]
    assert entry["token"] == "\ufffd"


def test_what_is_not_finite_is_written_as_a_floor():
    bad = TokenLogprob(-math.inf, (1, 2), (math.nan, -1.0))
    (entry,) = chat_content(TOKENIZER, delta((1, bad)))
    assert entry["logprob"] == FLOOR
    triples = Triples(None)
    assert triples.tokens(delta((1, bad))) == [(FLOOR, 1, None)]
    assert triples.tops(delta((1, bad))) == [[(FLOOR, 1, None), (-1.0, 2, None)]]


def test_tokens_without_logprobs_are_left_out():
    assert chat_content(TOKENIZER, delta((1, None), (2, TokenLogprob(-1.0))))[0]["bytes"] == [2]
    assert chat_content(TOKENIZER, Delta(0, "", (1, 2), (), Usage(1, 2, 0, 0), None)) == []


def test_sampled_token_is_always_among_the_top_ones_of_completions():
    spoken = CompletionLogprobs(TOKENIZER)
    body = spoken.take(delta((104, TokenLogprob(-3.0, (105,), (-0.1,)))))
    assert body.top_logprobs == [{"h": -3.0, "i": -0.1}]
    assert spoken.take(delta((105, TokenLogprob(-1.0)))).text_offset == [1]
