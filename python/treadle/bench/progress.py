"""A bar that moves with every answer, and a line for each where that is wanted."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm

from .asks import Answer


class Progress:
    """Called with every answer; on standard error."""

    def __init__(self, total: int, *, is_shown: bool, prints_answers: bool) -> None:
        self._bar = tqdm(total=total, disable=not is_shown, file=sys.stderr, unit="req")
        self._prints = prints_answers

    def __call__(self, answer: Answer) -> None:
        self._bar.update(1)
        if self._prints:
            tqdm.write(line(answer), file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.close()


def line(answer: Answer) -> str:
    if answer.error:
        return f"at {answer.sent_s:.3f} s: {answer.error}"
    said = answer.said
    cached = "" if said.cached is None else f", {said.cached} cached, {said.replayed} replayed"
    return (
        f"at {answer.sent_s:.3f} s: {answer.prompt_tokens} in{cached}, {said.output_tokens} out,"
        f" first token {answer.ttft_s:.3f} s, all {answer.e2e_s:.3f} s"
    )
