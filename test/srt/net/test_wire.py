"""Frames of every message: round trips, foreign bytes, cost."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
import time
import typing
from array import array
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.srt import messages, profiling, snapshot
from treadle.srt.lifecycle import Progress, Shutdown
from treadle.srt.messages import (
    TAGS,
    GenerateRequest,
    Message,
    PageUpdate,
    RequestId,
    SamplingParams,
    StepPlan,
    StepResult,
    TokenLogprob,
)
from treadle.srt.net.typed import WireError
from treadle.srt.net.wire import decode, encode
from treadle.srt.scores import PromptScores
from treadle.srt.token_masks import GrammarKind

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "str": TEXT,
    "bool": st.booleans(),
    "RequestId": TEXT,
    "GrammarKind": st.sampled_from(GrammarKind),
}


def any_of(hint: str) -> st.SearchStrategy[Any]:
    """Values of an annotation, read as text so that nothing is shared with the code under test."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint == "array[int]":
        return st.lists(INT32, max_size=6).map(lambda x: array("i", x))
    if hint == "array[float]":
        return st.lists(SCALARS["float"], max_size=6).map(lambda x: array("d", x))
    if hint.endswith(" | None"):
        return st.none() | any_of(hint.removesuffix(" | None"))
    if hint == "dict[str, float]":
        return st.dictionaries(TEXT, SCALARS["float"], max_size=3)
    if found := re.fullmatch(r"tuple\[(.*), \.\.\.\]", hint):
        return st.lists(any_of(found[1]), max_size=3).map(tuple)
    if found := re.fullmatch(r"tuple\[(\w+), (\w+)\]", hint):
        return st.tuples(any_of(found[1]), any_of(found[2]))
    return instances({**vars(profiling), **vars(snapshot), **vars(messages)}[hint])


def instances(cls: type) -> st.SearchStrategy[Any]:
    fields = {f.name: any_of(str(f.type)) for f in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


MESSAGES = st.one_of([instances(cls) for cls in TAGS.values()])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | TEXT,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(TEXT, x, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("tag", TAGS)
def test_message_survives_the_wire(tag: str):
    @given(instances(TAGS[tag]))
    def check(message: Message) -> None:
        frames = encode(message)
        assert decode(frames) == message
        assert orjson.loads(frames[0])[0] == tag

    check()


def test_every_message_class_has_one_tag():
    assert set(TAGS.values()) == set(typing.get_args(Message))
    assert len(set(TAGS.values())) == len(TAGS)


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_random_bytes_raise_wire_error(frames: list[bytes]):
    with pytest.raises(WireError):
        decode(frames)


@given(st.sampled_from([*TAGS]), JSON, st.lists(st.binary(max_size=9), max_size=2))
def test_random_fields_give_a_message_or_wire_error(tag: str, fields: object, rest: list[bytes]):
    try:
        message = decode([orjson.dumps([tag, fields]), *rest])
    except WireError:
        return
    assert type(message) is TAGS[tag]


@given(MESSAGES, st.data())
def test_damaged_message_gives_a_message_or_wire_error(message: Message, data: st.DataObject):
    frames = encode(message)
    head = orjson.loads(frames[0])
    fields = head[1]
    if fields:
        name = data.draw(st.sampled_from([*fields]))
        change = data.draw(st.sampled_from(["value", "missing", "extra"]))
        if change == "value":
            fields[name] = data.draw(JSON)
        elif change == "missing":
            del fields[name]
        else:
            fields["another"] = 1
    frames[0] = orjson.dumps(head)
    frames = frames[: data.draw(st.integers(1, len(frames)))]
    try:
        decode(frames)
    except WireError:
        return


def test_id_lists_travel_as_little_endian_int32_frames():
    plan = StepPlan(1, array("i", [1, 2]), array("i", [-1]), pages=(PageUpdate(3, 0, array("i")),))
    frames = encode(plan)
    assert frames[1:] == [b"\1\0\0\0\2\0\0\0", b"\xff\xff\xff\xff", b""]
    assert decode(frames) == plan


def test_numbers_travel_as_float64_frames_and_nan_survives():
    scores = PromptScores(array("d", [-0.5, math.nan]), array("i", [3, 1]))
    frames = encode(StepResult(1, array("i"), scores=(scores,)))
    assert frames[2] == struct.pack("<2d", -0.5, math.nan)
    got = decode(frames)
    assert isinstance(got, StepResult)
    assert got.scores[0].logprobs[0] == -0.5
    assert math.isnan(got.scores[0].logprobs[1])
    assert got.scores[0].ranks == scores.ranks


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "without frames"),
        ([b"{}"], "not [tag, fields]"),
        ([b'["nonsense",{}]'], "unknown message tag 'nonsense'"),
        ([b'["abort_all",{}]'], "AbortAll"),
        ([b'["abort_all",{"reason":1}]'], "expected str"),
        ([b'["stats_req",{"token":true}]'], "expected int, found bool"),
        ([b'["shutdown",{"reason":"x","more":1}]'], "Shutdown"),
        ([b'["done",{"token":1,"ok":true,"message":"","more":1}]'], "Done"),
        ([b'["result",{"step":1,"token_ids":0,"logprobs":[],"bad":[]}]'], "StepResult"),
    ],
)
def test_error_says_what_was_expected(frames: list[bytes], words: str):
    with pytest.raises(WireError, match=re.escape(words)):
        decode(frames)


@pytest.mark.parametrize("index", [1, -1, 0.5, None])
def test_array_must_name_a_frame_that_is_there(index: object):
    head = orjson.dumps(["plan", {**_plan_fields(), "token_ids": index}])
    with pytest.raises(WireError, match="frame number"):
        decode([head, b"\0\0\0\0"])


def test_array_frame_must_be_whole_numbers():
    with pytest.raises(WireError, match="3 bytes"):
        decode([orjson.dumps(["plan", _plan_fields()]), b"\0\0\0"])


def _plan_fields() -> dict[str, object]:
    fields: dict[str, object] = {"step": 1, "span_data": 0, "token_ids": 0}
    return fields | {"resets": [], "pages": [], "scored": [], "rewinds": [], "masks": []}


@pytest.mark.parametrize("rid", ["\ud800", 2**70])
def test_value_beyond_json_is_refused_when_sending(rid: Any):
    with pytest.raises(WireError, match="cannot encode GenerateRequest"):
        encode(GenerateRequest(rid, array("i"), SamplingParams(1)))


def test_only_messages_and_arrays_of_two_kinds_are_sent():
    with pytest.raises(WireError, match="not a message: SamplingParams"):
        encode(typing.cast(Message, SamplingParams(1)))
    with pytest.raises(WireError, match="array"):
        encode(GenerateRequest(RequestId("a"), typing.cast(Any, array("f")), SamplingParams(1)))
    with pytest.raises(WireError, match="object"):
        encode(Shutdown(typing.cast(str, object())))


def test_integers_in_float_fields_become_floats_and_nonfinite_ones_nan():
    sampling = SamplingParams(1, temperature=0)
    sent = GenerateRequest(RequestId("a"), array("i"), sampling)
    got = decode(encode(sent))
    assert isinstance(got, GenerateRequest) and type(got.sampling.temperature) is float
    logprob = TokenLogprob(float("-inf"))
    result = decode(encode(StepResult(1, array("i", [0]), (logprob,))))
    assert isinstance(result, StepResult) and result.logprobs[0] is not None
    assert result.logprobs[0].logprob != result.logprobs[0].logprob


def test_decode_plan_of_256_rows_costs_less_than_7000_additions():
    """A fifth of a millisecond where a loop of 1000 takes 30 us."""
    spans = array("i", [x for slot in range(256) for x in (slot, 999, 999, 1000, 1)])
    pages = tuple(PageUpdate(slot, 62, array("i", [slot])) for slot in range(16))
    plan = StepPlan(7, spans, array("i", [-1] * 256), pages=pages)
    best = min(_seconds(lambda: decode(encode(plan))) for _ in range(200))
    assert best < 7 * min(_seconds(_add_1000) for _ in range(200))


def _add_1000() -> None:
    total = 0
    for i in range(1000):
        total += i


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_progress_of_many_gigabytes_is_exact():
    message = Progress(0, 2**45 + 1, 2**53 + 1, "x")
    assert decode(encode(message)) == message
