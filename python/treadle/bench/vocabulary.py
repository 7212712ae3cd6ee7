"""What prompts are made of: common words, as text or as ids, with lengths in tokens.

A word with a space before it is one token in nearly every vocabulary, so a text of n words has n
tokens. The tokenizer is asked once which words are; where none can be asked a word counts as one,
and results still report what the server counted.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .traces import drawn

TEXT = """
the of and to in is it you that he was for on are with as his they be at one have this from or had
by hot but some what there we can out other were all your when up use word how said an each she
which do their time if will way about many then them would write like so these her long make thing
see him two has look more day could go come did my sound no most number who over know water than
call first people may down side been now find any new work part take get place made live where
after back little only round man year came show every good me give our under name very through
just form much great think say help low line before turn cause same mean move right boy old too
does tell set three want air well also play small end put home read hand port large add even land
here must big high such follow act why ask men change went light kind off need house picture try
us again point mother world near build self earth father head stand own page should country found
answer school grow study still learn plant cover food sun four state keep eye never last let
thought city tree cross farm hard start might story saw far sea draw left late run while press
close night real life few stop
"""
WORDS = tuple(TEXT.split())
MIN_SINGLE = 64  # fewer words of one token each would make texts too much alike

Encode = Callable[[str, bool], Awaitable[list[int] | None]]  # text, with special tokens


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`ids[i]` is the token of `words[i]` where `tokens_per_word` is 1; () where no tokenizer can
    be asked. `prefix`: what the model wants before every text, such as BOS.
    """

    words: tuple[str, ...]
    ids: tuple[int, ...]
    prefix: tuple[int, ...]
    tokens_per_word: float

    def text(self, rng: random.Random, num_tokens: int) -> str:
        """Begins with a space, so that texts can be joined."""
        count = max(1, round(num_tokens / self.tokens_per_word))
        return "".join(f" {word}" for word in rng.choices(self.words, k=count))

    def token_ids(self, rng: random.Random, num_tokens: int) -> array[int]:
        """With the prefix. Raises ValueError without a tokenizer."""
        if not self.ids:
            raise ValueError("token ids need a tokenizer: give --tokenizer")
        count = max(1, num_tokens - len(self.prefix))
        return array("i", (*self.prefix, *rng.choices(self.ids, k=count)))

    def spelled(self, trace: array[int]) -> list[int]:
        """Ids for what a trace spells."""
        return [self.ids[number] for number in drawn(trace, len(self.ids))]

    def worded(self, trace: array[int]) -> str:
        """Words for what a trace spells, about one token each."""
        return "".join(f" {self.words[number]}" for number in drawn(trace, len(self.words)))


async def read_vocabulary(encode: Encode | None) -> Vocabulary:
    """`encode`: None where there is no tokenizer."""
    text = "".join(f" {word}" for word in WORDS)
    ids = await encode(text, False) if encode else None
    if encode is None or not ids:
        return Vocabulary(WORDS, (), (), 1.0)
    prefix = tuple(await encode("", True) or ())
    if len(ids) == len(WORDS):
        return Vocabulary(WORDS, tuple(ids), prefix, 1.0)
    single = {word: await encode(f" {word}", False) or [] for word in WORDS}
    found = {word: tokens[0] for word, tokens in single.items() if len(tokens) == 1}
    if len(found) >= MIN_SINGLE:
        return Vocabulary(tuple(found), tuple(found.values()), prefix, 1.0)
    return Vocabulary(WORDS, tuple(dict.fromkeys(ids)), prefix, len(ids) / len(WORDS))
