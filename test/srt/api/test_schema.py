"""Nulls and unknown keys of every body."""

from __future__ import annotations

import msgspec
import pytest

from treadle.srt.api.schema import ChatRequest, CompletionRequest, GenerateBody, SamplingFields


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest, GenerateBody, SamplingFields])
def test_every_field_may_be_null(kind: type[msgspec.Struct]):
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    body = msgspec.json.encode(dict.fromkeys(names))
    assert msgspec.json.decode(body, type=kind) is not None


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest, GenerateBody])
def test_unknown_fields_pass_at_the_top(kind: type[msgspec.Struct]):
    assert msgspec.json.decode(b'{"next_year": [1]}', type=kind) == kind()


def test_unknown_sampling_fields_are_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"next_year": 1}', type=SamplingFields)


def test_absent_and_null_output_limits_differ():
    assert msgspec.json.decode(b"{}", type=SamplingFields).max_new_tokens is msgspec.UNSET
    null = msgspec.json.decode(b'{"max_new_tokens": null}', type=SamplingFields)
    assert null.max_new_tokens is None
