"""Sampling fields of a request -> values for the engine: defaults, ranges, spelling of errors.

Order of defaults: the request, then what the model's files recommend, then OpenAI's. Every message
names the parameter by the path the caller used and the range it must lie in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import UNSET

from ..errors import BadRequest
from ..messages import SamplingParams
from ..tokenizer.limits import Limits, OutputCap
from ..tokenizer.trail import TextRules
from .later import refuse_sampling
from .schema import ChatRequest, OpenAIFields, SamplingFields

MAX_CHOICES = 128
MAX_STOPS = 32
MAX_OPENAI_BIAS = 100.0
MAX_BIAS = 1e30  # finite in float32, also by the smallest temperature that is not greedy
MAX_TOP_LOGPROBS = 20  # of OpenAI
MAX_NATIVE_TOP = 128
INT64 = 2**63
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a route spells and bounds sampling fields. `max_new_tokens` is its default (None: to
    the end of the context).
    """

    max_new_tokens: int | None
    is_openai: bool
    prefix: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return self.prefix + self.names.get(name, name)


NATIVE = Dialect(128, is_openai=False, prefix="sampling_params.")
_OPENAI_NAMES = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "sampling_seed": "seed",
}
COMPLETION = Dialect(16, is_openai=True, names=_OPENAI_NAMES)
CHAT = Dialect(None, is_openai=True, names=_OPENAI_NAMES)
CHAT_NEW = Dialect(
    None, is_openai=True, names={**_OPENAI_NAMES, "max_new_tokens": "max_completion_tokens"}
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settled but for `params.max_new_tokens`, which needs the prompt's length and `cap`."""

    params: SamplingParams
    rules: TextRules
    cap: OutputCap
    n: int
    stream_interval: int | None


@dataclass(frozen=True, slots=True)
class SamplingReader:
    defaults: SamplingDefaults
    limits: Limits
    eos_ids: tuple[int, ...]

    def read(self, fields: SamplingFields, dialect: Dialect) -> Sampling:
        """Raises BadRequest, NotSupported."""
        refuse_sampling(fields, dialect.prefix)
        check = _Checker(dialect)
        cap = self._cap(fields, check)
        params = SamplingParams(
            max_new_tokens=0,
            min_new_tokens=self._min_new_tokens(fields, cap, check),
            temperature=check.number(
                "temperature", fields.temperature, self.defaults.temperature, (0.0, math.inf)
            ),
            top_p=check.number(
                "top_p", fields.top_p, self.defaults.top_p, (0.0, 1.0), is_open=True
            ),
            top_k=self._top_k(fields, check),
            min_p=check.number("min_p", fields.min_p, self.defaults.min_p, (0.0, 1.0)),
            frequency_penalty=check.number(
                "frequency_penalty", fields.frequency_penalty, 0.0, (-2.0, 2.0)
            ),
            presence_penalty=check.number(
                "presence_penalty", fields.presence_penalty, 0.0, (-2.0, 2.0)
            ),
            repetition_penalty=check.number(
                "repetition_penalty",
                fields.repetition_penalty,
                self.defaults.repetition_penalty,
                (0.0, 2.0),
                is_open=True,
            ),
            seed=check.seed(fields.sampling_seed),
            stop_token_ids=self._stop_ids(fields, check),
            logit_bias=self._bias(fields, check),
        )
        return Sampling(
            params,
            self._rules(fields, check),
            cap,
            n=check.count("n", fields.n, 1, (1, MAX_CHOICES)),
            stream_interval=self._interval(fields, check),
        )

    def _interval(self, fields: SamplingFields, check: _Checker) -> int | None:
        asked = fields.stream_interval
        return None if asked is None else check.count("stream_interval", asked, 1, (1, INT32_MAX))

    def _cap(self, fields: SamplingFields, check: _Checker) -> OutputCap:
        asked, path = fields.max_new_tokens, check.dialect.path("max_new_tokens")
        if asked is UNSET:
            return OutputCap(check.dialect.max_new_tokens, is_strict=False, param=path)
        if asked is None:
            return OutputCap(None, is_strict=False, param=path)
        tokens = check.count("max_new_tokens", asked, 0, (0, None))
        return OutputCap(tokens, is_strict=True, param=path)

    def _min_new_tokens(self, fields: SamplingFields, cap: OutputCap, check: _Checker) -> int:
        asked = fields.min_new_tokens
        if asked is None:
            return 0
        top = self.limits.context_len if cap.tokens is None else cap.tokens
        return check.count("min_new_tokens", asked, 0, (0, top))

    def _top_k(self, fields: SamplingFields, check: _Checker) -> int:
        top_k = self.defaults.top_k if fields.top_k is None else fields.top_k
        if top_k == -1 or (top_k == 0 and (check.dialect.is_openai or fields.top_k is None)):
            return -1
        if top_k < 1:
            raise check.bad("top_k", top_k, "-1 (off) or at least 1")
        return min(top_k, self.limits.vocab_size)

    def _stop_ids(self, fields: SamplingFields, check: _Checker) -> tuple[int, ...]:
        asked = fields.stop_token_ids or []
        for token_id in asked:
            self._check_id("stop_token_ids", token_id, check)
        own = () if fields.ignore_eos else self.eos_ids
        return tuple(dict.fromkeys((*asked, *own)))

    def _bias(self, fields: SamplingFields, check: _Checker) -> tuple[tuple[int, float], ...]:
        pairs: dict[int, float] = {}
        for key, value in (fields.logit_bias or {}).items():
            if not key.isdecimal() or not key.isascii():
                raise check.bad("logit_bias", key, "a token id as key")
            # Longer keys are no ids, and int() of very long ones is refused by Python itself.
            token_id = int(key) if len(key) < 12 else self.limits.vocab_size
            self._check_id("logit_bias", token_id, check)
            if check.dialect.is_openai:
                value = min(max(value, -MAX_OPENAI_BIAS), MAX_OPENAI_BIAS)
            if abs(value) > MAX_BIAS:
                raise check.bad(
                    "logit_bias", value, f"at least -{MAX_BIAS:g} and at most {MAX_BIAS:g}"
                )
            pairs[token_id] = value
        return tuple(pairs.items())

    def _check_id(self, name: str, token_id: int, check: _Checker) -> None:
        if not 0 <= token_id < self.limits.vocab_size:
            allowed = f"a token id of the vocabulary [0, {self.limits.vocab_size})"
            raise check.bad(name, token_id, allowed)

    def _rules(self, fields: SamplingFields, check: _Checker) -> TextRules:
        stops = [fields.stop] if isinstance(fields.stop, str) else fields.stop or []
        if len(stops) > MAX_STOPS:
            raise check.bad("stop", f"{len(stops)} strings", f"at most {MAX_STOPS} strings")
        return TextRules(
            stop=tuple(dict.fromkeys(stop for stop in stops if stop)),
            keep_stop=bool(fields.no_stop_trim),
            skip_special_tokens=fields.skip_special_tokens is not False,
        )


@dataclass(frozen=True, slots=True)
class _Checker:
    dialect: Dialect

    def bad(self, name: str, value: object, allowed: str) -> BadRequest:
        path = self.dialect.path(name)
        return BadRequest(f"{path} must be {allowed}, got {value}", param=path)

    def number(
        self,
        name: str,
        value: float | None,
        default: float,
        bounds: tuple[float, float],
        *,
        is_open: bool = False,
    ) -> float:
        """`is_open`: the lower bound itself is outside."""
        if value is None:
            return default
        low, high = bounds
        if not math.isfinite(value) or value > high or value < low or (is_open and value == low):
            upper = "finite" if high == math.inf else f"at most {high:g}"
            raise self.bad(name, value, f"{'above' if is_open else 'at least'} {low:g}, {upper}")
        return value

    def count(
        self, name: str, value: int | None, default: int, bounds: tuple[int, int | None]
    ) -> int:
        if value is None:
            return default
        low, high = bounds
        if value < low or (high is not None and value > high):
            upper = "" if high is None else f" and at most {high}"
            raise self.bad(name, value, f"at least {low}{upper}")
        return value

    def seed(self, value: int | None) -> int | None:
        if value is not None and not -INT64 <= value < INT64:
            raise self.bad("sampling_seed", value, "an integer of 64 bits")
        return value


def from_openai(body: OpenAIFields) -> SamplingFields:
    """The fields of an OpenAI body by their native names."""
    cap = body.max_tokens
    if isinstance(body, ChatRequest) and body.max_completion_tokens is not None:
        cap = body.max_completion_tokens
    return SamplingFields(
        max_new_tokens=UNSET if cap is None else cap,
        min_new_tokens=body.min_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        n=body.n,
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        ignore_eos=body.ignore_eos,
        skip_special_tokens=body.skip_special_tokens,
        no_stop_trim=body.no_stop_trim or body.include_stop_str_in_output,
        logit_bias=body.logit_bias,
        sampling_seed=body.seed,
    )


def showing(sampling: Sampling, ids: frozenset[int]) -> Sampling:
    """With these special tokens shown in the text, for a parser that has to see them."""
    return replace(sampling, rules=replace(sampling.rules, shown_ids=ids)) if ids else sampling


def top_logprobs(value: int | None, param: str, most: int = MAX_TOP_LOGPROBS) -> int | None:
    """Raises BadRequest outside [0, most]."""
    if value is not None and not 0 <= value <= most:
        raise BadRequest(f"{param} must be at least 0 and at most {most}, got {value}", param=param)
    return value
