"""How tokens are drawn and what form they must have: one value, spelled for each wire.

A field that is None was not given: a generation's own value goes before that of the run, which
goes before the server's. Ranges are the server's to check.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..client.errors import ProgramError

Json = dict[str, Any]

NATIVE_NAMES = {"seed": "sampling_seed"}
CHAT_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
TOP_LEVEL = ("priority",)  # fields of the request, not of its sampling_params
# What the OpenAI protocol itself has; other fields are extensions of some servers.
OPENAI_FIELDS = frozenset(
    {"max_new_tokens", "n", "stop", "temperature", "top_p", "frequency_penalty",
     "presence_penalty", "seed", "json_schema"}
)  # fmt: skip

INT = r"-?(0|[1-9][0-9]{0,17})"
DTYPES: dict[str, str] = {
    "int": INT,
    "float": INT + r"(\.[0-9]{1,12})?",
    "bool": "(true|false|True|False)",
    "str": r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of a generation, as a backend is given them.

    >>> tr.Sampling(temperature=0.0).over(tr.Sampling(temperature=1.0, top_p=0.9)).given()
    {'temperature': 0.0, 'top_p': 0.9}
    """

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    priority: int | None = None

    def over(self, defaults: Sampling) -> Sampling:
        """Own values where they are given, those of `defaults` elsewhere."""
        return dataclasses.replace(defaults, **self.given())

    def given(self) -> Json:
        values = zip(_NAMES, _VALUES(self), strict=True)
        return {name: value for name, value in values if value is not None}

    @property
    def num_outputs(self) -> int:
        return self.n or 1

    def native(self) -> Json:
        """`sampling_params` of /generate."""
        given = self.given()
        return {NATIVE_NAMES.get(k, k): v for k, v in given.items() if k not in TOP_LEVEL}

    def chat(self) -> Json:
        """Fields of an OpenAI request, our server's extensions among them."""
        return {CHAT_NAMES.get(k, k): v for k, v in self.given().items()}

    def openai_extensions(self) -> list[str]:
        """Given fields that the plain OpenAI protocol does not have."""
        return sorted(set(self.given()) - OPENAI_FIELDS)


_NAMES = tuple(field.name for field in dataclasses.fields(Sampling))
_VALUES = operator.attrgetter(*_NAMES)  # asdict copies deeply, which takes longer than a request
FIELD_NAMES = frozenset(_NAMES)


def schema_text(schema: str | Mapping[str, Any] | None) -> str | None:
    """As it is sent: JSON text."""
    if schema is None or isinstance(schema, str):
        return schema
    return json.dumps(schema)


def dtype_regex(dtype: str | type) -> str:
    """Raises ProgramError for a type that has no regular expression."""
    name = dtype if isinstance(dtype, str) else dtype.__name__
    if name not in DTYPES:
        raise ProgramError(f"dtype must be one of {', '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]
