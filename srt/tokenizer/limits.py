"""What a prompt and its output may measure: checked before a request enters the in-flight table.

Overflow texts contain the words `context length`, the limit and the counts: clients classify by
them. Every message names the field by the path that the caller knows it under.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadRequest, TooLong

MOST_COMPOSED = 4  # characters that a normaliser may make one of: a vowel and its marks


@dataclass(frozen=True, slots=True)
class OutputCap:
    """The asked number of new tokens. `tokens` None is up to the end of the context; a `strict`
    cap that does not fit is refused, another is cut to what fits.
    """

    tokens: int | None
    is_strict: bool
    param: str


@dataclass(frozen=True, slots=True)
class Limits:
    context_len: int  # prompt and output together
    vocab_size: int

    def check_ids(self, values: Sequence[int], param: str) -> array[int]:
        """Ids from outside as an id array. Raises BadRequest, TooLong."""
        self.check_prompt_len(len(values), param)
        low, high = min(values), max(values)
        if low < 0 or high >= self.vocab_size:
            bad = low if low < 0 else high
            raise BadRequest(
                f"{param} holds token id {bad}, which is outside the vocabulary "
                f"[0, {self.vocab_size})",
                param=param,
            )
        return array("i", values)

    def check_prompt_len(self, length: int, param: str) -> None:
        """Raises BadRequest for an empty prompt, TooLong for one that leaves no room."""
        if length == 0:
            raise BadRequest(f"{param} must not be empty: the prompt has no tokens", param=param)
        if length >= self.context_len:
            raise TooLong(
                f"The prompt has {length} tokens, but the model's context length is "
                f"{self.context_len} tokens and at least one must be left for the output.",
                param=param,
            )

    def check_text_len(self, num_chars: int, longest_piece: int, param: str) -> None:
        """Raises TooLong for a text of which the model's context cannot hold the tokens, whatever
        they are: the longest have `longest_piece` characters. Encoding such a text costs seconds
        and gigabytes.
        """
        fewest = num_chars // (longest_piece * MOST_COMPOSED)
        if fewest >= self.context_len:
            raise TooLong(
                f"{param} has {num_chars} characters, which are {fewest} tokens or more, but the "
                f"model's context length is {self.context_len} tokens.",
                param=param,
            )

    def output_tokens(self, prompt_len: int, cap: OutputCap) -> int:
        """The number of tokens to generate at most. Raises TooLong for a strict cap beyond."""
        room = self.context_len - prompt_len
        if cap.tokens is None:
            return room
        if cap.tokens > room and cap.is_strict:
            raise TooLong(
                f"The prompt has {prompt_len} tokens and {cap.param} asks for {cap.tokens} more, "
                f"together {prompt_len + cap.tokens}, but the model's context length is "
                f"{self.context_len} tokens.",
                param=cap.param,
            )
        return min(cap.tokens, room)
