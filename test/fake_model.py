"""A model as a pure function: the next token is one of (context hash, seed, output index)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.srt.messages import SamplingParams

MASK = (1 << 64) - 1
ROOT = 0x9E3779B97F4A7C15  # context hash of the empty prefix


class PlanError(AssertionError):
    """A plan broke a rule of the device."""


def extend(context: int, token: int) -> int:
    """Context hash after one more token."""
    x = ((context ^ (token + 0x632BE5AB)) * 0xBF58476D1CE4E5B9) & MASK
    return x ^ (x >> 29)


def fake_logprob(context: int, token: int) -> float:
    """Logprob of `token` after the tokens that `context` is the hash of."""
    return -float(extend(context, token) >> 40)


def require(ok: bool, message: str) -> None:
    if not ok:
        raise PlanError(message)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Text of one request run alone. `reason` "nan" means the last row had no finite logits."""

    token_ids: list[int]
    reason: str  # "stop", "length", "nan"


@dataclass(frozen=True, slots=True)
class FakeModel:
    """Next token as a pure function. Rates are per sampled token."""

    vocab_size: int = 50
    stop_rate: float = 0.05
    nan_rate: float = 0.0

    def is_bad(self, context: int) -> bool:
        return (context >> 11) % 100_000 < self.nan_rate * 100_000

    def sample(self, context: int, sampling: SamplingParams, index: int) -> int:
        """`index` counts earlier outputs; stop ids are masked until `min_new_tokens` exist."""
        require(sampling.seed is not None, "a slot needs a seed")
        x = extend(extend(context, sampling.seed or 0), index)
        stops = sampling.stop_token_ids
        allowed = index >= sampling.min_new_tokens
        if stops and allowed and (x >> 8) % 100_000 < self.stop_rate * 100_000:
            return stops[(x >> 40) % len(stops)]
        token = (x >> 32) % self.vocab_size
        while token in stops:  # stop ids come at the stop rate only
            token = (token + 1) % self.vocab_size
        return token

    def oracle(self, prompt: Sequence[int], sampling: SamplingParams, context_len: int) -> Oracle:
        context = ROOT
        for token in prompt:
            context = extend(context, token)
        out: list[int] = []
        while True:
            if self.is_bad(context):
                return Oracle(out, "nan")
            if len(out) == sampling.max_new_tokens:
                return Oracle(out, "length")
            token = self.sample(context, sampling, len(out))
            out.append(token)
            if token in sampling.stop_token_ids and len(out) > sampling.min_new_tokens:
                return Oracle(out, "stop")
            if len(out) == sampling.max_new_tokens or len(prompt) + len(out) >= context_len:
                return Oracle(out, "length")
            context = extend(context, token)
