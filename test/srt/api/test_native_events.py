"""Native streams are cumulative."""

from __future__ import annotations

from test.serving import Bench

PATH = "/generate"


async def test_events_are_cumulative_and_end_as_the_whole_answer(bench: Bench):
    bench.engine.reply = 'é"\n\t€ \u2028'.encode()
    body = {"text": "a", "return_logprob": True, "top_logprobs_num": 1,
            "return_text_in_logprobs": True}  # fmt: skip
    whole = (await bench.post(PATH, body)).json()
    events = await bench.events(PATH, body)
    for before, after in zip(events, events[1:], strict=False):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert before["meta_info"]["finish_reason"] is None
    last = events[-1]
    for meta in (last["meta_info"], whole["meta_info"]):
        for name in ("id", "e2e_latency", "first_token_latency"):
            del meta[name]
    whole["meta_info"].update(
        {name: last["meta_info"][name] for name in last["meta_info"] if name.startswith("input_")}
    )
    assert last == whole


async def test_batch_streams_carry_the_index(bench: Bench):
    events = await bench.events(PATH, {"text": ["a", "b"]})
    assert {event["index"] for event in events} == {0, 1}
    last = {event["index"]: event["text"] for event in events}
    assert last == {0: "hello", 1: "hello"}
    assert all("index" not in event for event in await bench.events(PATH, {"text": "a"}))


async def test_interval_of_one_request(bench: Bench):
    events = await bench.events(PATH, {"text": "a", "sampling_params": {"stream_interval": 2}})
    assert [len(event["output_ids"]) for event in events] == [1, 3, 5, 6]
