"""What chat and text completions have in common beyond the engine's side of a request."""

from __future__ import annotations

from ..errors import BadRequest
from .schema import OpenAIFields


class StreamPlan:
    """Which extra facts a stream carries. Raises BadRequest for options without a stream."""

    def __init__(self, body: OpenAIFields) -> None:
        options = body.stream_options
        self.is_streaming = bool(body.stream)
        if options is not None and not self.is_streaming:
            raise BadRequest("stream_options needs stream: true", param="stream_options")
        self.has_usage_chunk = options is not None and bool(options.include_usage)
        self.has_running_usage = options is not None and bool(options.continuous_usage_stats)
        self.has_token_ids = bool(body.return_token_ids)
