"""Sampling: whose value goes first, and its spellings."""

from __future__ import annotations

import re

import pytest

from treadle.client.errors import ProgramError
from treadle.lang.sampling import Sampling, dtype_regex, schema_text


def test_own_values_go_before_defaults_also_when_they_are_zero():
    own = Sampling(temperature=0.0, max_new_tokens=0)
    merged = own.over(Sampling(temperature=1.0, max_new_tokens=128, top_p=0.5))
    assert merged.given() == {"temperature": 0.0, "max_new_tokens": 0, "top_p": 0.5}


def test_each_wire_has_its_names():
    sampling = Sampling(max_new_tokens=4, min_new_tokens=1, seed=7, top_k=3, priority=2)
    assert sampling.native() == {
        "max_new_tokens": 4, "min_new_tokens": 1, "sampling_seed": 7, "top_k": 3,
    }  # fmt: skip
    assert sampling.chat() == {
        "max_tokens": 4, "min_tokens": 1, "seed": 7, "top_k": 3, "priority": 2,
    }  # fmt: skip
    assert sampling.openai_extensions() == ["min_new_tokens", "priority", "top_k"]


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (int, ["0", "-17", "123"], ["01", "1.5", ""]),
        ("float", ["0.5", "-3", "12.25"], [".5", "1."]),
        (bool, ["true", "False"], ["yes"]),
        (str, ['""', '"a b"', r'"a\"b"'], ["a", '"a', '"a"b"']),
    ],
)
def test_types_have_regular_expressions(dtype, good, bad):
    pattern = re.compile(dtype_regex(dtype))
    assert all(pattern.fullmatch(text) for text in good)
    assert not any(pattern.fullmatch(text) for text in bad)


def test_a_type_without_one_is_refused():
    with pytest.raises(ProgramError, match="dtype must be one of int, float, bool, str"):
        dtype_regex(list)


def test_schemas_are_sent_as_text():
    assert schema_text({"type": "object"}) == '{"type": "object"}'
    assert schema_text("{}") == "{}" and schema_text(None) is None
