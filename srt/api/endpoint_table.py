"""The one table of endpoints: what is served, what each takes, every status it can answer.

The app binds each to its handler and the OpenAPI document is made from the same values. A status
that an endpoint answers and that does not stand here is a bug.
"""

from __future__ import annotations

from . import answers, anthropic_schema, schema
from .endpoint import GENERATING, HTML, JSON, READING, TEXT, Endpoint, Query, Reply
from .later import ROUTES

GET = ("GET",)
POST = ("POST",)
ANY = ("GET", "POST", "PUT", "DELETE")

OPENAI, ANTHROPIC, NATIVE = "OpenAI", "Anthropic", "Native"
MODEL, CONTROL = "Model and server", "Health and control"
LATER = "Not in this build"
NO_BODY = Reply(media="", what="Serving.")
NOT_SERVING = Reply(503, media="", what="Starting, draining or dead.")

CHAT = Endpoint(
    POST,
    ("/v1/chat/completions",),
    OPENAI,
    "Answer a conversation",
    "With `stream: true` the answer comes as chunks: one with the role, then deltas, then one with "
    "the finish reason per choice, the usage if asked, and `[DONE]`.",
    request=schema.ChatRequest,
    example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32},
    replies=(Reply(kind=answers.ChatCompletion),),
    refusals=GENERATING,
    event=answers.ChatChunk,
)
COMPLETION = Endpoint(
    POST,
    ("/v1/completions",),
    OPENAI,
    "Continue a prompt, or several",
    request=schema.CompletionRequest,
    example={"prompt": "Once upon a time", "max_tokens": 32},
    replies=(Reply(kind=answers.TextCompletion),),
    refusals=GENERATING,
    event=answers.TextCompletion,
)
_MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "Say hello."}]
MESSAGES = Endpoint(
    POST,
    ("/v1/messages",),
    ANTHROPIC,
    "Answer a conversation",
    "With `stream: true` events come with names, as Anthropic's; there is no `[DONE]`.",
    request=anthropic_schema.MessagesRequest,
    example={"max_tokens": 32, "messages": _MESSAGES},
    replies=(Reply(kind=anthropic_schema.MessageAnswer),),
    refusals=GENERATING,
    event=anthropic_schema.MessageEvent,
    error=anthropic_schema.AnthropicError,
)
COUNT_TOKENS = Endpoint(
    POST,
    ("/v1/messages/count_tokens",),
    ANTHROPIC,
    "Count the tokens of a prompt",
    request=anthropic_schema.CountRequest,
    example={"messages": _MESSAGES},
    replies=(Reply(kind=anthropic_schema.CountAnswer),),
    refusals=(*READING, 404, 501),
    error=anthropic_schema.AnthropicError,
)
GENERATE = Endpoint(
    ("POST", "PUT"),
    ("/generate",),
    NATIVE,
    "Continue text or token ids, one or many",
    "Lists in, or n above 1, give an array, prompt-major; events of a stream carry `index` then. "
    "Events are cumulative.",
    request=schema.GenerateBody,
    example={"text": "Once upon a time", "sampling_params": {"max_new_tokens": 32}},
    replies=(Reply(kind=answers.NativeAnswer | list[answers.NativeAnswer]),),
    refusals=GENERATING,
    event=answers.NativeAnswer,
)

ROOT = Endpoint(GET, ("/",), MODEL, "Name and version as text", replies=(Reply(media=TEXT),))
VERSION = Endpoint(
    GET, ("/version",), MODEL, "The server's version", replies=(Reply(kind=answers.VersionBody),)
)
MODELS = Endpoint(
    GET,
    ("/v1/models",),
    OPENAI,
    "The served model",
    replies=(Reply(kind=answers.ModelList),),
    refusals=(503,),
)
MODEL_CARD = Endpoint(
    GET,
    ("/v1/models/{name:path}",),
    OPENAI,
    "One model",
    replies=(Reply(kind=answers.ModelCard),),
    refusals=(404, 503),
)
MODEL_INFO = Endpoint(
    GET,
    ("/model_info", "/get_model_info"),
    MODEL,
    "Facts of the model",
    replies=(Reply(kind=answers.ModelInfoBody),),
)
SERVER_INFO = Endpoint(
    GET,
    ("/server_info", "/get_server_info"),
    MODEL,
    "Settled options and state of the server",
    replies=(Reply(kind=answers.ServerInfoBody),),
)
LOADS = Endpoint(
    GET,
    ("/v1/loads",),
    MODEL,
    "How busy the server is, for routers",
    replies=(Reply(kind=answers.LoadsBody),),
    refusals=(501,),
    query=(
        Query("dp_rank", int, "Only this rank; there is rank 0."),
        Query("format", str, "Only json."),
    ),
)
METRICS = Endpoint(GET, ("/metrics",), CONTROL, "Prometheus metrics", replies=(Reply(media=TEXT),))
DASHBOARD = Endpoint(
    GET,
    ("/dashboard",),
    CONTROL,
    "A page that shows the server at work",
    "Loads nothing from elsewhere. It asks `/dashboard/data` every two seconds, and for a key if "
    "that needs one.",
    replies=(Reply(media=HTML),),
)
DASHBOARD_DATA = Endpoint(
    GET,
    ("/dashboard/data",),
    CONTROL,
    "What the dashboard shows",
    "A snapshot of the scheduler, at most half a second old. `metrics` has the scheduler's numbers "
    "under the names of `/metrics`. Lists are bounded, the prefix tree to the 400 largest of at "
    "most 1,000 nodes. Names of requests and sessions are digests unless the caller may control "
    "the server.",
    replies=(Reply(kind=answers.DashboardBody),),
    refusals=(503,),
)
TOKENIZE = Endpoint(
    POST,
    ("/tokenize", "/v1/tokenize"),
    NATIVE,
    "Token ids of texts or of a conversation",
    request=schema.TokenizeRequest,
    example={"prompt": "Once upon a time"},
    replies=(Reply(kind=answers.TokensBody),),
    refusals=(*READING, 501),
)
DETOKENIZE = Endpoint(
    POST,
    ("/detokenize", "/v1/detokenize"),
    NATIVE,
    "Text of token ids",
    request=schema.DetokenizeRequest,
    example={"tokens": [1, 2, 3]},
    replies=(Reply(kind=answers.DetokenizedBody),),
    refusals=READING,
)
PARSE_CALLS = Endpoint(
    POST,
    ("/parse_function_call",),
    NATIVE,
    "Find the tool calls in a text",
    request=schema.ParseCallsRequest,
    example={"text": '<tool_call>{"name": "f", "arguments": {}}</tool_call>', "tools": []},
    replies=(Reply(kind=answers.ParsedCalls),),
    refusals=READING,
)
SEPARATE_REASONING = Endpoint(
    POST,
    ("/separate_reasoning",),
    NATIVE,
    "Split a text into reasoning and the rest",
    request=schema.SeparateReasoningRequest,
    example={"text": "<think>Easy.</think>4", "reasoning_parser": "qwen3"},
    replies=(Reply(kind=answers.SeparatedReasoning),),
    refusals=READING,
)

HEALTH = Endpoint(
    GET,
    ("/health",),
    CONTROL,
    "Whether the server serves",
    "Answers from state; asks the engine for a token only after a long silence under load.",
    replies=(NO_BODY, NOT_SERVING),
)
HEALTH_GENERATE = Endpoint(
    GET, ("/health_generate",), CONTROL, "Generate one token", replies=(NO_BODY, NOT_SERVING)
)
READY = Endpoint(
    GET, ("/ready", "/ping"), CONTROL, "Whether requests are accepted",
    replies=(NO_BODY, NOT_SERVING),
)  # fmt: skip
FLUSH = Endpoint(
    ("GET", "POST"),
    ("/flush_cache", "/reset_prefix_cache"),
    CONTROL,
    "Empty the prefix cache",
    replies=(Reply(media=TEXT), Reply(400, media=TEXT, what="Requests are running.")),
    refusals=(400, 403, 503),
    query=(Query("timeout", float, "Seconds to wait for running requests."),),
)
ABORT = Endpoint(
    POST,
    ("/abort_request", "/abort_requests"),
    CONTROL,
    "End running requests",
    request=schema.AbortBody,
    example={"rid": "my-request"},
    replies=(Reply(kind=answers.AbortedBody),),
    refusals=(*READING, 403),
)
RELEASE = Endpoint(
    POST,
    ("/release_session",),
    NATIVE,
    "Say that nothing more will come in a session, or several",
    "A hint: what is kept for the session alone goes first when room is needed.",
    request=schema.ReleaseBody,
    example={"session_id": "my-session"},
    replies=(Reply(kind=answers.ReleasedBody),),
    refusals=(*READING, 503),
)

START_PROFILE = Endpoint(
    POST,
    ("/start_profile",),
    CONTROL,
    "Begin a trace of the workers",
    "The message is the path of the file that will be written on the server's machine.",
    request=schema.ProfileBody,
    example={"num_steps": 10},
    replies=(Reply(kind=answers.ProfileAnswer),),
    refusals=(*READING, 403, 501, 503),
)
STOP_PROFILE = Endpoint(
    POST,
    ("/stop_profile",),
    CONTROL,
    "End the trace and write its file",
    replies=(Reply(kind=answers.ProfileAnswer),),
    refusals=(400, 403, 503),
)

OPENAPI = Endpoint(
    GET, ("/openapi.json",), MODEL, "This document", replies=(Reply(kind=dict, media=JSON),)
)
DOCS = Endpoint(GET, ("/docs",), MODEL, "This document to read", replies=(Reply(media=HTML),))

EMBEDDINGS = Endpoint(
    POST, ("/v1/embeddings",), OPENAI, "Refused: the model generates text", refusals=(400,)
)

NOT_BUILT = tuple(
    Endpoint(ANY, (path,), LATER, "Answers 501", refusals=(404, 501) if "{" in path else (501,))
    for path in ROUTES
)
