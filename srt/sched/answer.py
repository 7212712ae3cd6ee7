"""What an answered step means for each request: tokens appended, an end found, pages published.

    StepResult --span by span--> Sampled --append--> tokens of the request, or its end

Owns the order of a result: one-row spans first, then longer ones, as they were planned. A sampled
span becomes one token, or with drafts as many as were accepted and one more; what comes after a
token that ends the request is dropped, as it would not have been sampled. Whether an end is final
is not decided here: it goes to `finish`, the one place that frees a request (rule T32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..messages import Finish, RequestOutput, StepResult, TokenLogprob, Usage
from .constrained import Constrained
from .counters import Counters
from .finish import after_token, not_finite
from .lookup import with_lookup
from .plan import PlannedSpan, StepRecord
from .request import Request, RequestState
from .running import RunningSet

Logprobs = tuple[TokenLogprob | None, ...]
FinishFn = Callable[[Request, Finish, tuple[int, ...], Logprobs], RequestOutput]


class Sampled(NamedTuple):
    """What the rows of one span became."""

    token_ids: Sequence[int]
    logprobs: Logprobs
    is_bad: bool
    drafts: Sequence[int] = ()
    num_sure: int = 0  # of the first of them the draft head is sure


def read_spans(result: StepResult, first: int) -> Iterator[Sampled]:
    """Of each sampled span from number `first` on, in plan order."""
    counts = result.counts or [1] * len(result.token_ids)
    token = sum(counts[:first])
    draft = sum(result.draft_counts[:first])
    for index in range(first, len(counts)):
        end = token + counts[index]
        draft_end = draft + (result.draft_counts[index] if result.draft_counts else 0)
        logprobs = result.logprobs[token:end]
        yield Sampled(
            result.token_ids[token:end],
            () if None in logprobs else logprobs,
            index in result.bad,
            result.drafts[draft:draft_end],
            result.sure_counts[index] if result.sure_counts else draft_end - draft,
        )
        token, draft = end, draft_end


def append(request: Request, token_ids: Sequence[int]) -> tuple[int, Finish | None]:
    """Makes sampled ids known up to one that ends the request: how many, and that end."""
    tokens = request.tokens
    for count, token in enumerate(token_ids, 1):
        tokens.append(token)
        if token in request.stop_ids or len(tokens) >= request.max_known:
            end = after_token(request, token)
            if end is not None:
                return count, end
    return len(token_ids), None


class Answers:
    __slots__ = ("_running", "_constrained", "_counters", "_finish")

    def __init__(
        self, running: RunningSet, constrained: Constrained, counters: Counters, finish: FinishFn
    ) -> None:
        self._running = running
        self._constrained = constrained
        self._counters = counters
        self._finish = finish

    def apply(
        self, record: StepRecord, result: StepResult, in_flight: int | None
    ) -> list[RequestOutput]:
        """Outputs of an answered step, in plan order. `in_flight`: newest step still planned."""
        outputs: list[RequestOutput] = []
        answer, add, running = self._answer_one, outputs.append, RequestState.RUNNING
        for index, request in enumerate(record.singles):
            if request.state is running:
                add(answer(request, result, index))
        sampled = read_spans(result, len(record.singles))
        for span in record.spans:
            self._counters.ran(span)
            found = next(sampled) if span.sample else None
            if span.request.state is running:
                outputs.extend(self._ran(span, found, in_flight))
        self._counters.sampled(sum(len(output.token_ids) for output in outputs))
        return outputs

    def _answer_one(self, request: Request, result: StepResult, index: int) -> RequestOutput:
        """One decode row. The hot loop of decoding: what `_answer` comes to for a request that
        goes on is written out."""
        tokens, token = request.tokens, result.token_ids[index]
        logprob = result.logprobs[index] if result.logprobs else None
        logprobs = () if logprob is None else (logprob,)
        known = len(tokens) + 1
        is_last = known >= request.max_known or token in request.stop_ids
        if is_last or request.intent is not None or index in result.bad:
            sampled = Sampled((token,), logprobs, index in result.bad)
            return self._answer(request, request.computed + 1, sampled)
        tokens.append(token)
        request.computed += 1
        prompt_len = request.prompt_len
        usage = Usage(
            prompt_len, known - prompt_len, request.cached, request.replayed, request.approx
        )
        return RequestOutput(request.rid, (token,), usage, None, logprobs, request.queue_s)

    def _answer(self, request: Request, computed: int, sampled: Sampled) -> RequestOutput:
        """Sampled rows of a running request are answered; rows below `computed` are, and those of
        accepted drafts."""
        if sampled.is_bad:  # its rows are not published (rule T13)
            return self._finish(request, not_finite(), (), ())
        request.computed = computed
        if request.intent is not None:
            return self._finish(request, request.intent, (), ())
        if request.len >= request.max_known:  # nothing was to be sampled
            return self._finish(request, Finish("length"), (), ())
        count, end = append(request, sampled.token_ids)
        request.computed = computed + count - 1
        request.next = max(request.next, request.computed)
        token_ids, logprobs = tuple(sampled.token_ids[:count]), sampled.logprobs[:count]
        if end is not None:
            return self._finish(request, end, token_ids, logprobs)
        if request.is_paced:
            token_ids = (*request.take_unsent(), *token_ids)
            self._pace(request, sampled)
        usage = Usage(
            request.prompt_len,
            len(request.tokens) - request.prompt_len,
            request.cached,
            request.replayed,
            request.approx,
        )
        return RequestOutput(request.rid, token_ids, usage, None, logprobs, request.queue_s)

    def _pace(self, request: Request, sampled: Sampled) -> None:
        """What the next rows are: drafts, once the grammar has seen them if there is one. A token
        drawn at random is verified by what its draft was drawn from, so those drafts stay."""
        drafts = sampled.drafts
        if drafts and request.sampling.is_greedy:
            drafts = with_lookup(request.tokens, drafts, sampled.num_sure)
        if request.matching is not None:
            request.known = request.next  # nothing to run until the grammar's row is there
            self._constrained.took(request, sampled.token_ids, drafts)
        else:
            request.known = request.len
            request.drafts = request.fitting(drafts)

    def _ran(
        self, span: PlannedSpan, sampled: Sampled | None, in_flight: int | None
    ) -> tuple[RequestOutput, ...]:
        """A longer span of a running request is answered; full pages of its prompt are published
        (T37), those of its output when it ends: until then what it reads stays its own (T16)."""
        request = span.request
        output: tuple[RequestOutput, ...] = ()
        if sampled is not None:
            self._counters.verified(span.num_drafts, len(sampled.token_ids))
            output = (self._answer(request, span.end, sampled),)
        else:
            request.computed = max(request.computed, span.end)
            if request.intent is not None:
                return (self._finish(request, request.intent, (), ()),)
        is_output = request.is_paced and span.start >= request.prompt_len
        if request.state is RequestState.RUNNING and not is_output:
            self._running.publish(request, in_flight)
        return output
