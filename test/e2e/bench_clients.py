"""The wire habits of load generators, as strict as theirs: what their parsers index must be there.

Each function sends one streaming request the way one client does and returns what it would have
counted. A chunk that such a client could not read fails here with the same KeyError or IndexError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from test.e2e.streams import iter_lines

Json = dict[str, Any]
DONE = "[DONE]"


@dataclass
class Count:
    """`num_chunks` that the client takes for a token or more, `tokens` that it reports."""

    text: str = ""
    num_chunks: int = 0
    tokens: int = 0
    cached: int | None = None
    usage: Json | None = None


def events(http: httpx.Client, path: str, body: Json, **headers: str) -> Iterator[str]:
    """Data of the events. Lines of their own, comments skipped, as these clients read them."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    with http.stream("POST", path, json=body, headers=named) as response:
        assert response.status_code == 200, response.read()
        if named:
            assert response.headers.items() >= named.items()
        for line in iter_lines(response):
            if line and not line.startswith(":"):
                assert line.startswith("data: "), line
                yield line.removeprefix("data: ")


def sglang_native(http: httpx.Client, prompt: str, tokens: int) -> Count:
    """Cumulative text and counts; the difference between two events is what the second brought."""
    sampling = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {
        "text": prompt, "sampling_params": sampling, "stream": True, "lora_path": None,
        "return_logprob": False, "top_logprobs_num": 0, "logprob_start_len": -1,
    }  # fmt: skip
    count, is_done = Count(), False
    for data in events(http, "/generate", body):
        if data == DONE:
            is_done = True
            continue
        event = orjson.loads(data)
        assert event["text"].startswith(count.text)
        if event["text"]:
            new = event["meta_info"]["completion_tokens"] - count.tokens
            count.num_chunks += new > 0
            count.text, count.tokens = event["text"], count.tokens + new
        count.cached = event["meta_info"]["cached_tokens"]
    assert is_done
    return count


def sglang_oai(http: httpx.Client, prompt: str, tokens: int) -> Count:
    """Indexes `choices[0]` in every chunk."""
    body = {
        "model": "whatever", "prompt": prompt, "temperature": 0.0, "best_of": 1,
        "max_tokens": tokens, "stream": True, "ignore_eos": True,
    }  # fmt: skip
    count = Count()
    for data in events(http, "/v1/completions", body):
        if data != DONE:
            chunk = orjson.loads(data)
            text = chunk["choices"][0]["text"]
            count.text += text
            count.num_chunks += bool(text)
            count.tokens = (chunk.get("usage") or {}).get("completion_tokens", count.num_chunks)
    return count


def sglang_oai_chat(http: httpx.Client, prompt: str, tokens: int) -> Count:
    """Likewise, but for the usage chunk; the role chunk counts as no token."""
    body = {
        "model": "whatever", "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.0, "max_tokens": tokens, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    count = Count()
    for data in events(http, "/v1/chat/completions", body):
        if data == DONE:
            continue
        chunk = orjson.loads(data)
        if usage := chunk.get("usage"):
            count.usage, count.tokens = usage, usage["completion_tokens"]
            count.cached = usage["prompt_tokens_details"]["cached_tokens"]
        if not chunk["choices"]:
            continue
        text = chunk["choices"][0]["delta"].get("content") or ""
        count.text += text
        count.num_chunks += bool(text)
    return count


def vllm(http: httpx.Client, path: str, prompt: str, tokens: int) -> Count:
    """Usage comes from a chunk without choices, and from no other."""
    body: Json = {
        "model": "whatever", "temperature": 0.0, "repetition_penalty": 1.0, "stream": True,
        "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip
    if path.endswith("chat/completions"):
        content = [{"type": "text", "text": prompt}]
        body |= {"messages": [{"role": "user", "content": content}]}
        body |= {"max_completion_tokens": tokens}
    else:
        body |= {"prompt": prompt, "max_tokens": tokens, "logprobs": None}
    count = Count()
    for data in events(http, path, body, x_request_id="bench-1"):
        if data == DONE:
            continue
        chunk = orjson.loads(data)
        if choices := chunk.get("choices"):
            text = _vllm_text(choices[0])
            count.num_chunks += bool(text)
            count.text += text or ""
        elif usage := chunk.get("usage"):
            count.usage, count.tokens = usage, usage["completion_tokens"]
    return count


def _vllm_text(choice: Json) -> str | None:
    """None: no token. Reasoning is read under this name only."""
    if "delta" not in choice:
        text: str = choice["text"]
        return text
    delta = choice["delta"]
    return delta.get("content") or delta.get("reasoning") or None


def guidellm(http: httpx.Client, path: str, prompt: str, tokens: int) -> Count:
    """Nulls, both names of the limit, usage on each chunk."""
    is_chat = path.endswith("chat/completions")
    body = {
        "model": "whatever", "max_tokens": tokens, "max_completion_tokens": tokens, "stop": None,
        "ignore_eos": True, "stream": True, "temperature": None, "top_p": None, "seed": None,
        "logprobs": None, "n": None, "user": None, "frequency_penalty": None, "logit_bias": None,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **({"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}),
    }  # fmt: skip
    if is_chat:
        body |= {"tools": None, "tool_choice": None, "response_format": None, "top_logprobs": None}
    count = Count()
    for data in events(http, path, body):
        if data == DONE:
            continue
        chunk = orjson.loads(data)
        assert chunk["usage"]["completion_tokens"] >= count.tokens
        count.usage, count.tokens = chunk["usage"], chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") if is_chat else choice["text"]
            count.num_chunks += bool(text)
            count.text += text or ""
    return count
