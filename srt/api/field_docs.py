"""What the fields of requests mean, and their ranges, for the OpenAPI document.

A name means the same on every route, so each stands here once. Ranges are enforced in `sampling.py`
and come from its constants; a test sends what lies just outside of every range given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .chat_reasoning import EFFORTS
from .generating import MAX_DEADLINE_S, MAX_PRIORITY, MAX_REPLAY_SLOPE
from .sampling import (
    INT32_MAX,
    INT64,
    MAX_CHOICES,
    MAX_NATIVE_TOP,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
)
from .scoring import MAX_LOGPROB_IDS

Limits = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """`limits` are JSON Schema keywords by the JSON type that they bound."""

    what: str
    limits: Mapping[str, Limits] = field(default_factory=dict)


def number(what: str, **limits: float) -> FieldDoc:
    return FieldDoc(what, {"number": limits})


def count(what: str, **limits: int) -> FieldDoc:
    return FieldDoc(what, {"integer": limits})


TOKENS = "Most tokens to generate; 0 computes the prompt only."
EFFORT = f"One of {', '.join(EFFORTS)}, or a number from 0 to 100; none turns thinking off."
SEED = {"minimum": -INT64, "maximum": INT64 - 1}

FIELDS = {
    "model": FieldDoc("Any name, unless the server was started with --strict-model-name."),
    "messages": FieldDoc("The conversation, oldest first."),
    "role": FieldDoc("Who speaks."),
    "content": FieldDoc("Text, or parts of it."),
    "prompt": FieldDoc("Text or token ids, one or many."),
    "text": FieldDoc("Text."),
    "input_ids": FieldDoc("Token ids in place of text."),
    "input_embeds": FieldDoc("Not in this build."),
    "sampling_params": FieldDoc("How to sample; an unknown member is an error."),
    "stream": FieldDoc("Answer as server-sent events."),
    "stream_options": FieldDoc("Only with `stream: true`."),
    "include_usage": FieldDoc("A last chunk without choices carries the usage."),
    "continuous_usage_stats": FieldDoc("Every chunk carries the usage so far."),
    "max_tokens": count(TOKENS, minimum=0),
    "max_completion_tokens": count(f"{TOKENS} Goes before `max_tokens`.", minimum=0),
    "max_new_tokens": count(f"{TOKENS} null: to the end of the context.", minimum=0),
    "min_tokens": count("Stops count only after so many tokens.", minimum=0),
    "min_new_tokens": count("Stops count only after so many tokens.", minimum=0),
    "temperature": number("0 is greedy.", minimum=0),
    "top_p": number("Smallest set of tokens with this probability.", exclusiveMinimum=0, maximum=1),
    "top_k": count("Most likely tokens to draw from; -1 is off.", minimum=-1),
    "min_p": number("Least probability, relative to the best token's.", minimum=0, maximum=1),
    "frequency_penalty": number("Per occurrence in the output.", minimum=-2, maximum=2),
    "presence_penalty": number("For any occurrence in the output.", minimum=-2, maximum=2),
    "repetition_penalty": number(
        "Divides the logits of tokens of prompt and output.", exclusiveMinimum=0, maximum=2
    ),
    "n": count("Choices per prompt.", minimum=1, maximum=MAX_CHOICES),
    "best_of": count("Only equal to `n`."),
    "stop": FieldDoc("Strings that end the text.", {"array": {"maxItems": MAX_STOPS}}),
    "stop_token_ids": FieldDoc("Token ids that end the text, beside the model's own."),
    "ignore_eos": FieldDoc("Go on after the model's end tokens."),
    "skip_special_tokens": FieldDoc("Leave special tokens out of the text."),
    "spaces_between_special_tokens": FieldDoc("No effect: pieces are joined as bytes."),
    "no_stop_trim": FieldDoc("Keep the stop in the text."),
    "include_stop_str_in_output": FieldDoc("Keep the stop in the text."),
    "logit_bias": FieldDoc("Added to the logits of token ids."),
    "seed": count("Same seed, same draws, whatever else runs.", **SEED),
    "sampling_seed": count("Same seed, same draws, whatever else runs.", **SEED),
    "stream_interval": count("Tokens per event.", minimum=1, maximum=INT32_MAX),
    "logprobs": count(
        "Log-probabilities of the output; in completions the number of likeliest tokens.",
        minimum=0, maximum=MAX_TOP_LOGPROBS,
    ),
    "top_logprobs": count(
        "Likeliest tokens per position; needs `logprobs`.", minimum=0, maximum=MAX_TOP_LOGPROBS
    ),
    "top_logprobs_num": count("Likeliest tokens per position.", minimum=0, maximum=MAX_NATIVE_TOP),
    "token_ids_logprob": FieldDoc(
        f"Further ids whose logprobs are wanted per position, at most {MAX_LOGPROB_IDS}.",
    ),
    "prompt_logprobs": count(
        "Likeliest tokens of each position of the prompt; not in streams.",
        minimum=0, maximum=MAX_TOP_LOGPROBS,
    ),
    "echo": FieldDoc("Begin the text, and the lists of `logprobs`, with the prompt."),
    "return_logprob": FieldDoc("Answer with log-probabilities."),
    "logprob_start_len": count("First prompt position with one; -1: output only.", minimum=-1),
    "return_text_in_logprobs": FieldDoc("Also the text of each token."),
    "return_token_ids": FieldDoc("Also the ids of prompt and output."),
    "return_cached_tokens_details": FieldDoc(
        "Also where cached tokens were found, in `sglext` of the answer or of a chunk of its own."
    ),
    "rid": FieldDoc("The client's id of the request; must not be in flight."),
    "extra_key": FieldDoc("Requests share cached prefixes only under the same key."),
    "cache_salt": FieldDoc("Requests share cached prefixes only under the same salt."),
    "session_id": FieldDoc("A hint that ties the requests of one agent loop together."),
    "priority": count(
        "Higher is more important. No effect unless the server honours priorities.",
        minimum=-MAX_PRIORITY,
        maximum=MAX_PRIORITY,
    ),
    "deadline_s": number(
        "Seconds from arrival, after which the answer is 503.",
        exclusiveMinimum=0,
        maximum=MAX_DEADLINE_S,
    ),
    "swa_replay": FieldDoc(
        "How windows are rebuilt after a prefix hit: bounded, exact, canonical or off."
    ),
    "swa_replay_slope": count(
        "Rows that each lower window layer replays more.", minimum=0, maximum=MAX_REPLAY_SLOPE
    ),
    "tools": FieldDoc("Functions that the model may call."),
    "tool_choice": FieldDoc("none, auto, required, or one function by name."),
    "response_format": FieldDoc("What form the text must have."),
    "chat_template": FieldDoc("Refused unless the server trusts templates of requests."),
    "chat_template_kwargs": FieldDoc("Variables for the chat template."),
    "continue_final_message": FieldDoc("The last message is the assistant's; go on writing it."),
    "add_generation_prompt": FieldDoc("Open the assistant's turn; on unless it is continued."),
    "parallel_tool_calls": FieldDoc("false: at most one call."),
    "reasoning_effort": FieldDoc(f"{EFFORT} Given to the chat template."),
    "effort": FieldDoc(EFFORT),
    "enabled": FieldDoc("Turns thinking on or off, where the chat template has a switch."),
    "separate_reasoning": FieldDoc("false: reasoning stays in the content."),
    "tool_call_parser": FieldDoc("A name of --tool-call-parser; default: the server's."),
    "reasoning_parser": FieldDoc("A name of --reasoning-parser; default: the server's."),
    "stream_reasoning": FieldDoc("false: reasoning comes in one piece when it ends."),
    "include_reasoning": FieldDoc("false: reasoning is left out of the answer."),
    "description": FieldDoc("What the function does, for the model."),
    "strict": FieldDoc("Of a tool: given to the chat template. Of a format: always so."),
    "schema": FieldDoc("A JSON Schema that the text must match."),
    "json_schema": FieldDoc("A JSON Schema that the text must match, or its text."),
    "regex": FieldDoc("A regular expression that the text must match."),
    "ebnf": FieldDoc("A grammar (GBNF or Lark) that the text must match."),
    "structured_outputs": FieldDoc("A grammar in vLLM's spelling."),
    "guided_json": FieldDoc("As json_schema."),
    "guided_regex": FieldDoc("As regex."),
    "guided_choice": FieldDoc("Strings of which the text must be one."),
    "guided_grammar": FieldDoc("As ebnf."),
    "json": FieldDoc("As json_schema."),
    "choice": FieldDoc("Strings of which the text must be one."),
    "grammar": FieldDoc("As ebnf."),
    "json_object": FieldDoc("true: the text must be a JSON object."),
    "whitespace_pattern": FieldDoc("Not in this build."),
    "disable_any_whitespace": FieldDoc("No effect: there never is any."),
    "disable_additional_properties": FieldDoc("Not in this build."),
    "disable_fallback": FieldDoc("No effect: there is one compiler."),
    "structural_tag": FieldDoc("Not in this build."),
    "stop_regex": FieldDoc("Not in this build."),
    "custom_params": FieldDoc("Not in this build."),
    "beam_width": count("Only 1."),
    "add_special_tokens": FieldDoc("Add the tokens that open and close a text."),
    "tokens": FieldDoc("Token ids, or lists of them."),
    "abort_all": FieldDoc("All requests."),
    "abort_message": FieldDoc("What the ended requests are told."),
    "prefix": FieldDoc("All ids that start with `rid`."),
    "system": FieldDoc("What comes before the conversation."),
    "stop_sequences": FieldDoc("Strings that end the text.", {"array": {"maxItems": MAX_STOPS}}),
    "thinking": FieldDoc("Whether the model thinks first; the template's own way when absent."),
    "budget_tokens": count("No effect: how long it thinks is the model's.", minimum=1),
    "display": FieldDoc("omitted: the thinking is not shown."),
    "output_config": FieldDoc("How the answer is made."),
    "format": FieldDoc("Not in this build."),
    "context_management": FieldDoc("No effect: the whole conversation is kept."),
    "metadata": FieldDoc("No effect."),
    "user_id": FieldDoc("No effect."),
    "cache_control": FieldDoc("No effect: every prefix is cached."),
    "input_schema": FieldDoc("JSON Schema of the arguments."),
    "disable_parallel_tool_use": FieldDoc("At most one call."),
    "input": FieldDoc("The arguments of the call."),
    "tool_use_id": FieldDoc("The call that this result answers."),
    "is_error": FieldDoc("The call failed; `Error: ` is put before the content."),
    "signature": FieldDoc("Not read."),
    "data": FieldDoc("Not read."),
    "source": FieldDoc("Refused."),
    "output_dir": FieldDoc("A folder of the server's machine."),
    "num_steps": count("Ends the trace after so many steps; 1000 if none are given.", minimum=1),
    "activities": FieldDoc("CPU and GPU."),
    "with_stack": FieldDoc("Keep the Python stack of every operator."),
    "record_shapes": FieldDoc("Keep the shapes of every operator's arguments."),
    "profile_id": FieldDoc("The name of the file."),
    "start_step": FieldDoc("Not in this build."),
    "profile_by_stage": FieldDoc("Not in this build."),
    "merge_profiles": FieldDoc("Not in this build."),
    "profile_prefix": FieldDoc("Not in this build."),
    "type": FieldDoc("The kind of this object."),
    "name": FieldDoc("A name."),
    "function": FieldDoc("A function."),
    "arguments": FieldDoc("JSON text, or what it spells."),
    "parameters": FieldDoc("JSON Schema of the arguments."),
    "id": FieldDoc("The id of the call."),
    "tool_calls": FieldDoc("Calls that the assistant made."),
    "tool_call_id": FieldDoc("The call that this message answers."),
    "reasoning": FieldDoc("How to think; in a message: what the assistant thought."),
    "reasoning_content": FieldDoc("What the assistant thought before it answered."),
}  # fmt: skip
