"""One step under construction: spans, their token ids, the row budget, and what the answer means.

Rows of a step are decode rows first (one per request, always all of them; paced ones last, with
as many drafts as leave a page of rows), then longer spans as far as the budget goes. The budget
counts every row, replayed ones too (rule B14):

    |d|d|d|d|---- span of a parked request ----|-- span of an admitted request --|
    |<---------------------------- at most chunk_tokens rows ------------------->|
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..arrays import ids
from ..cache.grid import next_point
from ..messages import (
    FROM_DEVICE,
    SPAN_FIELDS,
    PageUpdate,
    Rewind,
    SlotReset,
    StepPlan,
)
from ..scores import ScoredRows
from ..token_masks import TokenMask
from .constrained import use_masks
from .request import Request


class PlannedSpan(NamedTuple):
    """Rows `[start, end)`; those below `hit` are replayed. `sample`: rows that are sampled; more
    than one are the last of these and of the drafts that follow them."""

    request: Request
    start: int
    hit: int
    end: int
    sample: int

    @property
    def num_drafts(self) -> int:
        return max(0, self.sample - 1)


class PlannedScores(NamedTuple):
    """Logprobs of prompt tokens from index `first` on."""

    request: Request
    first: int


@dataclass(slots=True, eq=False)
class StepRecord:
    """What a planned step will answer, in span order: one-row spans, then longer ones, and the
    prompt tokens that are scored.
    """

    step: int
    planned_at: float  # seconds of the caller's clock
    singles: Sequence[Request] = ()  # each advanced by one sampled row
    spans: list[PlannedSpan] = field(default_factory=list)
    scores: list[PlannedScores] = field(default_factory=list)


def stop_of(request: Request, row: int) -> int:
    """Where a span that has come to `row` ends at the latest: at the next grid point of a canonical
    prompt, else with the last known token."""
    point = next_point(request.shape.grid, row, request.prompt_len)
    return request.known if point is None else point


def span_end(
    start: int, known: int, hit: int, budget: int, page_size: int, *, may_cut_replay: bool
) -> int | None:
    """End of a span from row `start` when at most `budget` rows may run; None to wait.

    All rows up to `known`, or up to a multiple of the page size in absolute position (rule T37).
    A replay that may not be cut is run together with at least a page of new rows (rule B15).
    """
    end = known
    if known - start > budget:
        end = (start + budget) // page_size * page_size
    if end <= start or (end <= hit and not may_cut_replay):
        return None
    return end


class StepBuilder:
    """Collects one `StepPlan`. Adding rows of a request advances its cursors."""

    __slots__ = (
        "record",
        "_chunk_tokens",
        "_data",
        "_tokens",
        "_resets",
        "_rewinds",
        "_pages",
        "_scored",
        "_masks",
    )

    def __init__(self, record: StepRecord, chunk_tokens: int) -> None:
        self.record = record
        self._chunk_tokens = chunk_tokens
        self._data = ids()
        self._tokens = ids()
        self._resets: list[SlotReset] = []
        self._rewinds: list[Rewind] = []
        self._pages: list[PageUpdate] = []
        self._scored: list[ScoredRows] = []
        self._masks: list[TokenMask] = []

    @property
    def num_rows(self) -> int:
        return len(self._tokens)

    @property
    def has_prompt_rows(self) -> bool:
        return any(span.start < span.request.prompt_len for span in self.record.spans)

    @property
    def budget(self) -> int:
        """Rows that still fit."""
        return self._chunk_tokens - len(self._tokens)

    def add_singles(self, requests: Sequence[Request]) -> None:
        """One row each for requests with exactly one row to run: the hot loop of decoding. The id
        of a token that is still to be sampled is taken from the device."""
        step = self.record.step
        add_span = self._data.extend
        add_token = self._tokens.append
        for request in requests:
            row = request.next
            after = row + 1
            tokens = request.tokens
            add_span((request.slot, row, row, after, 1))
            add_token(tokens[row] if row < len(tokens) else FROM_DEVICE)
            request.next = after
            request.last_step = step
            if after + 1 < request.max_known:
                request.known = after + 1
        self.record.singles = requests

    def add_span(self, request: Request, end: int, num_drafts: int = 0) -> None:
        """Rows `[next, end)`; the last is sampled when it is that of the last known token, and so
        are the rows of the first `num_drafts` of its drafts, which come with it."""
        start, is_last = request.next, end == request.known
        drafts = request.drafts[:num_drafts] if is_last else ()
        sample = int(is_last) + len(drafts)
        self._score(request, end)
        last = end + len(drafts)
        self._data.extend((request.slot, start, max(start, request.hit), last, sample))
        self._tokens.extend(request.tokens[start:end])
        self._tokens.extend(drafts)
        self.record.spans.append(PlannedSpan(request, start, request.hit, end, sample))
        request.next = end
        request.last_step = self.record.step
        if sample and request.matching is not None:
            self._masks.extend(use_masks(request, len(drafts)))
        elif sample and not request.is_paced and end + 1 < request.max_known:
            request.known = end + 1

    def _score(self, request: Request, end: int) -> None:
        """What the span to be added, rows `[next, end)`, says of the prompt. Row p scores token
        p + 1, which may be the first of the next chunk."""
        first = request.to_score
        last = min(end + 1, request.prompt_len)
        if first >= last:
            return
        span = len(self._data) // SPAN_FIELDS
        self._scored.append(ScoredRows(span, first - 1, request.tokens[first:last]))
        self.record.scores.append(PlannedScores(request, first))
        request.to_score = last

    def enter(self, reset: SlotReset, pages: array[int]) -> None:
        """A request takes its slot: empty rings, sampler state, page-table row."""
        self._resets.append(reset)
        self._pages.append(PageUpdate(reset.slot, 0, pages))

    def rewind(self, request: Request, floor: int, point: int) -> None:
        """The request has come to a grid point: its rows from `floor` on are run again."""
        request.next, request.hit = floor, point
        shape = request.shape
        lookback = request.lookback()
        self._rewinds.append(Rewind(request.slot, floor, point, shape.slope, shape.depth, lookback))

    def build(self, updates: list[PageUpdate]) -> StepPlan:
        """`updates`: page-table changes of requests that were running before this step."""
        pages = (*self._pages, *updates)
        return StepPlan(
            self.record.step,
            self._data,
            self._tokens,
            tuple(self._resets),
            pages,
            tuple(self._scored),
            tuple(self._rewinds),
            tuple(self._masks),
        )
