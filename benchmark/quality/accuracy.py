"""Shares of right answers with their standard error, and servers that are asked by URL."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """`standard_error`: of the share, over cases."""

    cases: int
    passed: int
    share: float
    standard_error: float

    @classmethod
    def of(cls, passed: Sequence[bool]) -> Accuracy:
        size, good = len(passed), sum(passed)
        share = good / size
        return cls(size, good, share, math.sqrt(share * (1 - share) / size))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server. `url` without `/v1`; `key` "" sends none."""

    url: str
    model: str
    key: str = ""

    def complete(self, prompt: str | list[int], **fields: object) -> dict[str, Any]:
        """A greedy answer of /v1/completions. Raises urllib.error.HTTPError for a refusal."""
        body = {"model": self.model, "prompt": prompt, "temperature": 0, **fields}
        headers = {"content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        url = self.url.rstrip("/") + "/v1/completions"
        request = urllib.request.Request(url, orjson.dumps(body), headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found: dict[str, Any] = orjson.loads(response.read())
        return found
