"""Features of other servers that this build does not have: named, and answered with 501.

A field counts as set when it differs from the value that means "off". `refuse` reads the body a
second time for these fields only; skipping the rest costs about a nanosecond a byte.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import NotSupported
from .schema import SamplingFields

OFF: tuple[object, ...] = (None, False, 0, "", [], {})
SAMPLING_LATER = (
    "structural_tag",
    "stop_regex",
    "custom_params",
)
ROUTES = (
    "/v1/responses",
    "/v1/responses/{id}",
    "/v1/rerank",
    "/v1/score",
    "/v1/classify",
    "/v1/audio/transcriptions",
    "/encode",
    "/classify",
    "/open_session",
    "/close_session",
    "/pause_generation",
    "/continue_generation",
    "/update_weights_from_disk",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/load_lora_adapter",
    "/unload_lora_adapter",
)


class CommonLater(msgspec.Struct, kw_only=True):
    session_params: Any = None
    routed_dp_rank: Any = None
    data_parallel_rank: Any = None
    lora_path: Any = None
    max_thinking_tokens: Any = None
    return_hidden_states: Any = None
    return_routed_experts: Any = None
    custom_logit_processor: Any = None
    bootstrap_host: Any = None
    bootstrap_room: Any = None
    kv_transfer_params: Any = None


class OpenAILater(CommonLater, kw_only=True):
    structural_tag: Any = None
    stop_regex: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    thinking_token_budget: Any = None
    truncate_prompt_tokens: Any = None
    use_beam_search: Any = None
    return_meta_info: Any = None
    suffix: Any = None
    functions: Any = None
    prediction: Any = None


class ChatLater(OpenAILater, kw_only=True):
    echo: Any = None


class NativeLater(CommonLater, kw_only=True):
    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    return_prompt_token_ids: Any = None
    use_beam_search: Any = None


def refuse(data: bytes, fields: type[CommonLater]) -> None:
    """`data` is a valid JSON object. Raises NotSupported naming the first field that is set."""
    for name, value in msgspec.structs.asdict(msgspec.json.decode(data, type=fields)).items():
        if value not in OFF:
            raise not_supported(name)


def refuse_sampling(fields: SamplingFields, where: str) -> None:
    values = msgspec.structs.asdict(fields)
    for name in SAMPLING_LATER:
        if values[name] not in OFF:
            raise not_supported(where + name)
    if fields.beam_width not in (None, 1):
        raise not_supported(where + "beam_width")


def not_supported(param: str, what: str = "") -> NotSupported:
    detail = f" ({what})" if what else ""
    return NotSupported(f"{param}{detail} is not supported by this build", param=param)
