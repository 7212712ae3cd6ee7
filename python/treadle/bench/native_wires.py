"""Routes of one server family each: SGLang's /generate and llama.cpp's /completion."""

from __future__ import annotations

from collections.abc import Sequence

from .asks import Ask, Event, Json, Options, Reading
from .wire import prompt_field, read_tiers


class NativeWire:
    """Cumulative events."""

    path = "/generate"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        sampling = {
            "temperature": options.temperature,
            "top_p": options.top_p,
            "max_new_tokens": ask.output_len,
            "ignore_eos": options.ignore_eos,
        }
        body: Json = {"sampling_params": sampling, "stream": options.stream}
        body |= prompt_field(ask.prompt, text="text", ids="input_ids")
        if options.top_logprobs >= 0:
            body |= {"return_logprob": True, "logprob_start_len": options.logprob_start}
            body |= {"top_logprobs_num": options.top_logprobs}
        if options.lora:
            body["lora_path"] = options.lora
        return body | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        arrivals: list[tuple[float, int]] = []
        count = 0
        for event in events:
            now = event.data["meta_info"]["completion_tokens"]
            if now > count:
                arrivals.append((event.at_s, now - count))
            count = now
        last = events[-1].data
        meta = last["meta_info"]
        ids = last.get("output_ids")
        return Reading(
            arrivals=tuple(arrivals),
            text=last.get("text", ""),
            output_ids=None if ids is None else tuple(ids),
            prompt_tokens=meta["prompt_tokens"],
            output_tokens=count,
            cached=meta.get("cached_tokens"),
            replayed=meta.get("replayed_tokens", 0),
            tiers=read_tiers(meta.get("cached_tokens_details")),
        )


class LlamaWire:
    """Events with the new tokens; greedy requests get the shortest sampler chain."""

    path = "/completion"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        if options.top_logprobs >= 0 or options.lora:
            raise ValueError("logprobs and lora-name are not for the backend llama.cpp")
        body = prompt_field(ask.prompt, text="prompt", ids="prompt")
        body |= {"n_predict": ask.output_len, "stream": options.stream, "return_tokens": True}
        body |= {"cache_prompt": True, "ignore_eos": options.ignore_eos}
        if options.temperature == 0:
            return body | {"samplers": ["top_k"], "top_k": 1} | options.extra
        sampling = {"temperature": options.temperature, "top_p": options.top_p}
        return body | sampling | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        found = [(event.at_s, event.data.get("tokens", [])) for event in events]
        timings = events[-1].data["timings"]
        ids = tuple(token for _, tokens in found for token in tokens)
        return Reading(
            arrivals=tuple((at_s, len(tokens)) for at_s, tokens in found if tokens),
            text="".join(event.data.get("content", "") for event in events),
            output_ids=ids,
            prompt_tokens=timings["prompt_n"] + timings["cache_n"],
            output_tokens=len(ids),
            cached=timings["cache_n"],
        )
