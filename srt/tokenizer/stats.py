"""Times and counts of requests as clients feel them, handed to the metrics.

Owns when a token count becomes a metric: prompt counts once per prompt with its first choice's
first output, generated tokens as they come, one end per choice. Probes of our own are not counted.
"""

from __future__ import annotations

from ..metrics import RequestMetrics
from .choice import Choice


class Meter:
    """One per HTTP request; `metrics` None counts nothing."""

    def __init__(self, metrics: RequestMetrics | None, *, is_streaming: bool) -> None:
        self._metrics = metrics
        self._is_streaming = is_streaming

    def arrived(self, num_prompts: int) -> None:
        if self._metrics is not None:
            self._metrics.arrived(num_prompts, is_streaming=self._is_streaming)

    def progressed(self, choice: Choice, num_new: int, queue_s: float, now: float) -> None:
        """`num_new` tokens of `choice` arrived at `now`; keeps its token times."""
        if num_new == 0:
            return
        metrics, usage = self._metrics, choice.usage
        if choice.first_at is None:
            choice.first_at = now
            if metrics is not None:
                metrics.first_token(
                    now - choice.arrived_at,
                    queue_s,
                    is_streaming=self._is_streaming,
                    is_hit=usage.cached_tokens > 0,
                )
        elif metrics is not None:
            metrics.next_tokens(num_new, now - choice.last_at)
        choice.last_at = now
        if metrics is not None:
            metrics.generated(num_new, is_streaming=self._is_streaming)

    def admitted(self, choice: Choice) -> None:
        """The first output of `choice` came: its prompt is counted, once per prompt."""
        if self._metrics is not None and choice.is_first:
            self._metrics.prompt(choice.usage, is_streaming=self._is_streaming)

    def finished(self, choice: Choice, *, is_aborted: bool, now: float) -> None:
        if self._metrics is None:
            return
        if is_aborted:
            self._metrics.aborted()
        else:
            self._metrics.finished(choice.usage, now - choice.arrived_at)
