"""The first release's checklist, lines C1 to C5: clients as they are, against real weights.

`test_checklist.py` says where each line is tested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.shared_params import ResponseFormatJSONSchema

from test.e2e import bench_clients
from test.e2e.bench_clients import Count
from test.e2e.conftest import StartServer
from test.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

KEY = "secret"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PROMPT = "The loom was invented a long time ago. The first looms were"
TOKENS = 12
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name three colours."}]
FORMAT: ResponseFormatJSONSchema = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "age": {"type": "integer", "minimum": 0, "maximum": 99},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def server(request: pytest.FixtureRequest, serve_module: StartServer) -> Iterator[Server]:
    server = serve_module(f"demo:{request.param}", "--kv-cache-memory", "256M", "--api-key", KEY)
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, timeout=120, headers=headers) as http:
        yield http


def test_c1_openai_sdk_chats_and_streams(client: openai.OpenAI):
    chat = client.chat.completions
    whole = chat.create(model="any", messages=ASK, max_completion_tokens=TOKENS, temperature=0)
    chunks = list(
        chat.create(
            model="any", messages=ASK, max_completion_tokens=TOKENS, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content != ""
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [
        c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason
    ]
    assert reasons == [whole.choices[0].finish_reason]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices == []


def test_c1_openai_sdk_json_schema(client: openai.OpenAI):
    body = {"model": "any", "messages": ASK, "response_format": FORMAT, "max_tokens": 60}
    answer = client.chat.completions.create(**body, temperature=0)  # type: ignore[call-overload]
    person = json.loads(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    assert set(person) == {"name", "age"}
    assert len(person["name"]) <= 12 and 0 <= person["age"] <= 99


def test_c1_openai_sdk_logprobs(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="any", messages=ASK, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert len(logprobs.content) == answer.usage.completion_tokens
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs) <= 0
        assert entry.token == entry.top_logprobs[0].token


def test_c1_openai_sdk_two_choices_count_their_prompt_once(client: openai.OpenAI):
    one = client.chat.completions.create(model="any", messages=ASK, max_tokens=6, seed=1)
    two = client.chat.completions.create(model="any", messages=ASK, max_tokens=6, seed=1, n=2)
    assert [choice.index for choice in two.choices] == [0, 1]
    assert two.choices[0].message.content == one.choices[0].message.content
    assert two.choices[0].message.content != two.choices[1].message.content
    assert two.usage.prompt_tokens == one.usage.prompt_tokens
    assert 6 < two.usage.completion_tokens <= 12


def test_c1_openai_sdk_raises_the_right_class(client: openai.OpenAI):
    chat = client.chat.completions
    with pytest.raises(openai.BadRequestError) as bad:
        chat.create(model="any", messages=ASK, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="context length") as long:
        client.completions.create(model="any", prompt=[7] * 40_000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        chat.create(model="any", messages=[])
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def whole_text(http: httpx.Client, prompt: str = PROMPT) -> str:
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    text: str = http.post("/generate", json={"text": prompt, "sampling_params": sampling}).json()[
        "text"
    ]
    return text


def check(count: Count) -> None:
    """What the client counted, one token per chunk, is what the server says."""
    assert count.tokens == TOKENS
    assert count.num_chunks == TOKENS
    if count.usage is not None:
        assert count.usage["completion_tokens"] == TOKENS
        assert count.usage["total_tokens"] == TOKENS + count.usage["prompt_tokens"]


def test_c2_sglang_native_client_reads_cumulative_text_and_cached_tokens(http: httpx.Client):
    assert http.post("/flush_cache", params={"timeout": 60}).status_code == 200
    cold = bench_clients.sglang_native(http, PROMPT * 3, TOKENS)
    warm = bench_clients.sglang_native(http, PROMPT * 3, TOKENS)
    check(cold)
    assert cold.text == warm.text == whole_text(http, PROMPT * 3)
    assert cold.cached == 0
    assert warm.cached is not None and warm.cached >= 16


def test_c2_sglang_oai_client_finds_a_choice_in_every_chunk(http: httpx.Client):
    count = bench_clients.sglang_oai(http, PROMPT, TOKENS)
    check(count)
    assert count.text == whole_text(http)


def test_c2_sglang_oai_chat_client_counts_tokens_and_the_cached_ones(http: httpx.Client):
    first = bench_clients.sglang_oai_chat(http, PROMPT * 3, TOKENS)
    again = bench_clients.sglang_oai_chat(http, PROMPT * 3, TOKENS)
    check(first)
    assert again.text == first.text
    assert again.cached is not None and again.cached >= 16


def test_c2_what_the_sglang_client_asks_beside_its_load(http: httpx.Client):
    for path in ("/server_info", "/get_server_info"):
        info = http.get(path).json()
        (state,) = info["internal_states"]
        assert state["last_gen_throughput"] >= 0
        assert state["avg_spec_accept_length"] >= 0
        assert info["scheduler_info"]["max_total_num_tokens"] > 0
        assert KEY not in json.dumps(info)
    for path in ("/model_info", "/get_model_info"):
        assert http.get(path).json()["tokenizer_path"]
    (card,) = http.get("/v1/models").json()["data"]
    assert (card["owned_by"], card["max_model_len"] > 1000) == ("sglang", True)
    assert http.post("/flush_cache", params={"timeout": 60}).status_code == 200


@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_c3_vllm_client_counts_what_usage_says(http: httpx.Client, path: str):
    """D2, D9, D10: its usage comes from the chunk without choices, its id comes back."""
    check(bench_clients.vllm(http, path, PROMPT, TOKENS))


@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_c5_guidellm_client_may_send_nulls_and_both_limits(http: httpx.Client, path: str):
    assert http.get("/health").status_code == 200
    check(bench_clients.guidellm(http, path, PROMPT, TOKENS))
