"""Requests with a grammar: what may be sampled next is known only when the last id is.

    HELD until the first row of the grammar -> WAITING -> RUNNING -> a sampled id is committed
                                                  next row asked for <-'        |
          known tokens grow by the id and by what the grammar forces <----------'

So such a request is never planned ahead of a commit, while others are; its rows are planned like a
prompt's. Drafts are walked through the grammar before they are run: those that it does not allow
are cut, and each that is left has the mask of what may follow it. Forced ids ("jump-forward") get
no sampling of their own: they are run as one span, and reach the client with the next sampled id. A
request with logprobs has none forced, since a forced id has no logprob to tell.

Invariants: a row that is asked for is collected once, whatever the request's state by then; its
mask stays with the request over a preemption (rule T43); an aborted request asks no more (T34).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import NotSupported
from ..grammar.mask import NextRow
from ..grammar.store import GrammarStore, Matching
from ..messages import Finish, GenerateRequest
from ..token_masks import TokenMask
from .finish import after_token
from .request import Request, RequestState


class Constrained:
    """`store` None: grammars are switched off."""

    def __init__(self, store: GrammarStore | None) -> None:
        self._store = store
        self._asked: list[Request] = []  # in order; each has a job on its way

    @property
    def num_asked(self) -> int:
        """Requests, in whatever state, of which a row is on its way."""
        return len(self._asked)

    @property
    def num_held(self) -> int:
        return sum(request.state is RequestState.HELD for request in self._asked)

    def start(self, message: GenerateRequest) -> Matching | None:
        """For a request that arrives; None without a grammar. Raises: NotSupported."""
        sampling = message.sampling
        if sampling.grammar is None:
            return None
        if self._store is None:
            raise NotSupported("grammars are switched off")
        stop_ids = frozenset(sampling.stop_token_ids)
        return self._store.start(sampling.grammar, stop_ids, jumps=message.top_logprobs is None)

    def hold(self, request: Request) -> None:
        """It waits for the row that its start asked for."""
        self._asked.append(request)

    def took(self, request: Request, token_ids: Sequence[int], drafts: Sequence[int]) -> None:
        """Sampled ids that do not end the request, and what may follow them."""
        assert request.matching is not None
        request.told = request.len
        request.matching.took(token_ids, drafts)
        self._asked.append(request)

    def collect(self) -> Iterator[tuple[Request, Finish | None]]:
        """Requests whose row is there: with their end, or ready to be planned further."""
        asked, self._asked = self._asked, []
        for request in asked:
            if request.state is RequestState.FINISHED:
                continue
            assert request.matching is not None
            row = request.matching.poll()
            if row is None:
                self._asked.append(request)
            else:
                yield request, _apply(request, row)


def is_asking(request: Request) -> bool:
    """Whether a row of its grammar is on its way."""
    return request.matching is not None and request.mask is None


def use_masks(request: Request, num_drafts: int) -> list[TokenMask]:
    """For the span that is planned now: its last rows are that of the last token known, and those
    of `num_drafts` drafts."""
    assert request.mask is not None
    first = TokenMask(request.slot, request.mask, request.tokens[request.told :])
    request.mask = None
    return [first, *(TokenMask(request.slot, words) for words in request.ahead[:num_drafts])]


def _apply(request: Request, row: NextRow) -> Finish | None:
    """The row's forced ids become known. Where only an end is allowed it is the end, whatever
    `min_new_tokens` asks for: there is nothing else to say."""
    if row.error:
        return Finish("abort", message=f"grammar: {row.error}", status=400)
    end, start = None, request.len
    for token in row.forced:
        request.tokens.append(token)
        end = after_token(request, token)
        if end is not None:
            break
    request.unsent = tuple(request.tokens[start:])
    if end is None and row.is_done:
        end = Finish("stop")
    request.mask = row.words
    request.known = request.len
    if request.state is RequestState.RUNNING:  # else its rows are a prompt's, which take no drafts
        request.drafts, request.ahead = request.fitting(row.drafts), row.ahead
    return end
