"""Rows of a step, grouped by what is done to them."""

from __future__ import annotations

from array import array

from test.srt.worker.test_device_sampler import KINDS, VOCAB, state
from test.srt.worker.test_sampler import params
from treadle.srt.token_masks import TokenMask
from treadle.srt.worker.draws import lay_out
from treadle.srt.worker.verify import uniform


def test_rows_are_grouped_by_what_is_done_to_them():
    draws = lay_out(range(len(KINDS)), [state(x) for x in KINDS], (), VOCAB)
    assert draws.free.tolist() == [1, 2, 10]
    assert draws.filtered.tolist() == [3, 4, 5, 6, 7, 8]
    assert draws.penalised.tolist() == [9, 10]
    assert list(zip(draws.bias_rows, draws.bias_ids, strict=True)) == [
        (11, 17), (11, 18), (11, 19), (12, 17),
    ]  # fmt: skip
    assert list(zip(draws.ban_rows, draws.ban_ids, strict=True)) == [(12, 17), (12, 18)]
    assert draws.top_k[[0, 3]].tolist() == [VOCAB, 5]
    assert not draws.is_plain


def test_greedy_rows_alone_are_plain():
    greedy = params(temperature=0.0)
    assert lay_out([4, 7], [state(greedy)] * 2, (), VOCAB).is_plain
    late = params(temperature=0.0, min_new_tokens=3, stop_token_ids=(1,))
    assert lay_out([4], [state(late)], (), VOCAB).is_plain


def test_number_of_a_draw_follows_from_seed_and_output_index():
    draws = lay_out([1, 2], [state(params(seed=5), 8), state(params(temperature=0.0))], (), VOCAB)
    assert draws.uniform.tolist() == [uniform(5, 8), 0.0]


def test_masks_go_to_the_rows_of_their_slots():
    masks = (TokenMask(9, array("i", [1, -1, 3])), TokenMask(4, array("i", [2])))
    draws = lay_out([4, 7, 9], [state(params())] * 3, masks, VOCAB)
    assert draws.masked.tolist() == [0, 2]
    assert draws.words.shape == (2, 2)
    assert draws.words[1].tolist() == [1 + (0xFFFFFFFF << 32) - (1 << 64), 3]
