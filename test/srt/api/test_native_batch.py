"""The batch form of /generate: one value for all, or a list as long."""

from __future__ import annotations

import msgspec
import pytest

from treadle.srt.api.native_batch import read_batch
from treadle.srt.api.schema import GenerateBody
from treadle.srt.errors import BadRequest


def read(**fields: object):
    return read_batch(msgspec.convert(fields, GenerateBody))


def test_single_and_list_forms():
    assert read(text="a").is_list is False
    assert read(text=["a"]).is_list is True
    assert read(input_ids=[1, 2]).is_list is False
    batch = read(input_ids=[[1], [2, 3]])
    assert [(row.ids, row.path) for row in batch.rows] == [
        ([1], "input_ids[0]"), ([2, 3], "input_ids[1]")
    ]  # fmt: skip


def test_one_value_is_for_all_and_a_list_is_per_prompt():
    batch = read(text=["a", "b"], return_logprob=True, top_logprobs_num=[0, 4], rid=["x", "y"])
    assert [row.top_logprobs for row in batch.rows] == [0, 4]
    assert [row.rid for row in batch.rows] == ["x", "y"]
    assert [row.rid for row in read(text=["a", "b"], rid="x").rows] == ["", ""]


def test_no_logprobs_unless_returned():
    (row,) = read(text="a", top_logprobs_num=5, logprob_start_len=0, token_ids_logprob=[3]).rows
    assert (row.top_logprobs, row.logprob_start, row.logprob_ids) == (None, None, [])


def test_starts_and_asked_ids_are_for_all_or_for_each():
    fields = {"text": ["a", "b"], "return_logprob": True}
    rows = read(**fields, logprob_start_len=[-1, 1], token_ids_logprob=[3, 4]).rows
    assert [row.logprob_start for row in rows] == [None, 1]
    assert [row.logprob_ids for row in rows] == [[3, 4], [3, 4]]
    rows = read(**fields, logprob_start_len=0, token_ids_logprob=[[], [4]]).rows
    assert [row.logprob_start for row in rows] == [0, 0]
    assert [row.logprob_ids for row in rows] == [[], [4]]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": "a", "rid": ["x", "y"]}, "rid"),
        ({"text": ["a"], "top_logprobs_num": [1, 2]}, "top_logprobs_num"),
        ({"text": "a", "logprob_start_len": -2}, "logprob_start_len"),
        ({"text": "a", "top_logprobs_num": 129}, "top_logprobs_num"),
        ({"text": "a", "return_logprob": []}, "return_logprob"),
        ({"text": "a", "token_ids_logprob": [1, [2]]}, "token_ids_logprob"),
        ({"text": ["a", "b"], "token_ids_logprob": [[1]]}, "token_ids_logprob"),
    ],
)
def test_mistakes_name_the_field(fields: dict[str, object], param: str):
    with pytest.raises(BadRequest) as caught:
        read(**fields)
    assert caught.value.param == param
