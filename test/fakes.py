"""A worker without torch: executes `StepPlan`s against a model of the device and checks each one.

What a page position holds is modelled by one integer, the hash of the token ids up to and including
that position. So a stale page, a page freed too early, a wrong rebinding or a hit on somebody
else's prefix all show as a wrong integer at the row that reads it. Tokens are sampled by a
deterministic function of (context hash, seed, output index): the text of a request must not depend
on chunks, hits, preemption or its neighbours, and `FakeModel.oracle` says what it has to be.

Checked on every plan: page 0 and slot 0 are never used; rows of a slot are contiguous from its
floor; windows start anew only at the row that the request has come to; every row sees the pages of
its own prefix and, in the ring, its whole window above the floor, which a slot that takes another's
ring must find there; rows below `computed` write nothing; nobody writes a page of the tree; no
unanswered step uses a slot that a plan resets, or writes a page that it gives to somebody else
(T31: reading one is harmless, the worker runs steps in order); the row budget holds.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

from test.fake_model import ROOT, FakeModel, PlanError, extend, fake_logprob, require
from treadle.srt.arrays import ids
from treadle.srt.messages import (
    FROM_DEVICE,
    PageUpdate,
    Rewind,
    RowSpan,
    SlotReset,
    StepPlan,
    StepResult,
    TokenLogprob,
)
from treadle.srt.scores import PromptScores, ScoredRows
from treadle.srt.token_masks import TokenMask


@dataclass(slots=True, eq=False)
class FakeSlot:
    """Device state of one slot. `contexts[p]` is the context hash of position p."""

    reset: SlotReset
    ring: list[tuple[int, int] | None]
    next_row: int
    num_output: int
    table: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    last_token: int | None = None
    started: bool = False


@dataclass(slots=True, eq=False)
class _Bound:
    """Host view of a slot at the newest submitted plan: which pages its rows may touch."""

    hit: int
    table: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Sampled:
    token_ids: array[int] = field(default_factory=ids)
    counts: array[int] = field(default_factory=ids)
    logprobs: list[TokenLogprob | None] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    drafts: array[int] = field(default_factory=ids)
    draft_counts: array[int] = field(default_factory=ids)

    def add(
        self, tokens: list[int], drafts: list[int], top_logprobs: int | None, *, is_bad: bool
    ) -> None:
        """One span."""
        self.bad += [len(self.counts)] * is_bad
        self.token_ids.extend(tokens)
        self.counts.append(len(tokens))
        has = top_logprobs is not None
        self.logprobs += [TokenLogprob(-float(x)) if has else None for x in tokens]
        self.drafts.extend(drafts)
        self.draft_counts.append(len(drafts))

    def result(
        self, step: int, rows: int, scores: tuple[PromptScores, ...], *, speculates: bool
    ) -> StepResult:
        kept = tuple(self.logprobs) if any(x is not None for x in self.logprobs) else ()
        out = StepResult(step, self.token_ids, kept, tuple(self.bad), (rows,), scores=scores)
        if not speculates:
            require(set(self.counts) <= {1}, "drafts came without speculation")
            return out
        return replace(out, counts=self.counts, drafts=self.drafts, draft_counts=self.draft_counts)


class FakeWorker:
    """`submit` plans, `step` answers the oldest; `execute` does both for a single plan.

    `in_tree` (pages that the radix tree owns) enables the check that nobody writes them. `window`
    0 means a model without window layers, `ring_rows` 0 a ring of one window. `max_rows` is the row
    budget of one step.
    """

    def __init__(
        self,
        model: FakeModel,
        page_size: int,
        num_pages: int,
        num_slots: int,
        *,
        window: int = 0,
        ring_rows: int = 0,
        max_rows: int = 1 << 30,
        in_tree: Callable[[], Container[int]] | None = None,
        draft_tokens: int = 0,
    ) -> None:
        self.model = model
        self.page_size = page_size
        self.num_slots = num_slots
        self.window = window
        self.ring_rows = max(1, ring_rows or window)
        self.max_rows = max_rows
        self.in_tree = in_tree
        self.draft_tokens = draft_tokens
        self.pages: list[list[int]] = [[0] * page_size for _ in range(num_pages)]
        self.slots: dict[int, FakeSlot] = {}
        self.pending: deque[tuple[StepPlan, set[int], set[int]]] = deque()
        self.rows_run = 0
        self.kept_windows = 0
        self._bound: dict[int, _Bound] = {}
        self._last_step: int | None = None

    def execute(self, plan: StepPlan) -> StepResult:
        self.submit(plan)
        require(len(self.pending) == 1, "execute() with older plans unanswered")
        return self.step()

    def submit(self, plan: StepPlan) -> None:
        """Queue a plan; refuses slots and new pages that an unanswered step still uses."""
        require(self._last_step is None or plan.step > self._last_step, "steps must ascend")
        self._last_step = plan.step
        for reset in plan.resets:
            require(0 < reset.slot < self.num_slots, f"reset of slot {reset.slot}")
            busy = any(reset.slot in used for _, used, _ in self.pending)
            require(not busy, f"slot {reset.slot} is reset under a running step")
            known = not reset.source or reset.source in self._bound
            require(known, f"slot {reset.source} has no window to take")
            self._bound[reset.slot] = _Bound(reset.hit)
        for update in plan.pages:
            self._bind(update)
        slots: set[int] = set()
        written: set[int] = set()
        for span in plan.spans():
            require(span.slot in self._bound, f"span of slot {span.slot} before its reset")
            require(span.slot not in slots, f"two spans of slot {span.slot}")
            slots.add(span.slot)
            last = -(-span.end // self.page_size)
            written.update(self._bound[span.slot].table[span.computed // self.page_size : last])
        self.pending.append((plan, slots, written))

    def _bind(self, update: PageUpdate) -> None:
        require(update.slot in self._bound, f"pages for slot {update.slot} before its reset")
        bound = self._bound[update.slot]
        require(update.first <= len(bound.table), f"gap in the page table of slot {update.slot}")
        for index, page in enumerate(update.pages, update.first):
            require(0 < page < len(self.pages), f"page {page} is not for requests")
            if index < len(bound.table):
                bound.table[index] = page
                continue
            bound.table.append(page)
            if index * self.page_size >= bound.hit:
                busy = any(page in pages for _, _, pages in self.pending)
                require(not busy, f"page {page} is reused under a running step")

    def step(self) -> StepResult:
        """Run the oldest queued plan."""
        plan, _, _ = self.pending.popleft()
        for reset in plan.resets:
            self._reset(reset)
        for rewind in plan.rewinds:
            self._rewind(self.slots[rewind.slot], rewind)
        for update in plan.pages:
            table = self.slots[update.slot].table
            table[update.first : update.first + len(update.pages)] = update.pages
        require(len(plan.token_ids) > 0, "an empty plan")
        require(len(plan.token_ids) <= self.max_rows, f"{len(plan.token_ids)} rows in one step")
        out = _Sampled()
        scores: list[PromptScores] = []
        wanted = {scored.span: scored for scored in plan.scored}
        row = 0
        owned = self.in_tree() if self.in_tree is not None else ()
        masks: dict[int, list[TokenMask]] = {}
        for mask in plan.masks:
            masks.setdefault(mask.slot, []).append(mask)
        for index, span in enumerate(plan.spans()):
            slot = self.slots[span.slot]
            given = plan.token_ids[row : row + span.end - span.start]
            row += len(given)
            self._run(slot, span, given, owned)
            if index in wanted:
                scores.append(self._score(slot, span, wanted[index]))
            if span.sample:
                is_bad = self.model.is_bad(slot.contexts[span.end - span.sample])
                fed = given[len(given) - span.sample + 1 :]
                tokens = self._verify(slot, span, fed, masks.pop(span.slot, []))
                out.add(tokens, self._draft(slot), slot.reset.top_logprobs, is_bad=is_bad)
        require(row == len(plan.token_ids), "token ids and spans differ in rows")
        require(not masks, f"masks of slots {list(masks)} without a sampled span")
        self.rows_run += row
        return out.result(plan.step, row, tuple(scores), speculates=self.draft_tokens > 0)

    def _reset(self, reset: SlotReset) -> None:
        known = reset.prompt_len + reset.num_output
        require(0 <= reset.floor <= reset.hit < known, f"floor and hit of {reset}")
        wanted = known if reset.sampling.has_penalties else 0
        require(len(reset.history) == wanted, f"{len(reset.history)} ids of history, not {wanted}")
        ring: list[tuple[int, int] | None] = [None] * self.ring_rows
        first = reset.floor
        if reset.source:
            first = reset.hit
            require(reset.floor == max(0, first - self.window + 1), f"floor of {reset}")
            held = self.slots[reset.source].ring
            ring = [row if row and row[0] < first else None for row in held]
            self.kept_windows += 1
        self.slots[reset.slot] = FakeSlot(reset, ring, first, reset.num_output)

    def _rewind(self, slot: FakeSlot, rewind: Rewind) -> None:
        reset = slot.reset
        require(slot.next_row == rewind.hit, f"{rewind} while the next row is {slot.next_row}")
        require(0 <= rewind.floor <= rewind.hit < reset.prompt_len, f"floor and hit of {rewind}")
        slot.reset = replace(reset, floor=rewind.floor, hit=rewind.hit)
        slot.ring = [None] * len(slot.ring)
        slot.next_row = rewind.floor
        del slot.contexts[rewind.floor :]

    def _run(
        self, slot: FakeSlot, span: RowSpan, tokens: array[int], owned: Container[int]
    ) -> None:
        size = self.page_size
        require(span.start == slot.next_row, f"{span} does not start at row {slot.next_row}")
        require(span.end > span.start, f"empty {span}")
        require(span.computed == max(span.start, slot.reset.hit), f"write floor of {span}")
        require(not span.sample or span.end > slot.reset.hit, f"{span} samples a replayed row")
        require(span.end <= len(slot.table) * size, f"{span} has no page")
        if not slot.started:
            self._adopt(slot)
        self._check_pages(slot, span.start)
        self._check_window(slot, span.start)
        for position, given in enumerate(tokens, span.start):
            token = self._token(slot, given, single=len(tokens) == 1)
            before = slot.contexts[-1] if slot.contexts else ROOT
            context = extend(before, token)
            slot.contexts.append(context)
            page = slot.table[position // size]
            if position < span.computed:
                seen = self.pages[page][position % size]
                require(seen == context, f"position {position} of {span} is another prefix")
            else:
                require(page not in owned, f"{span} writes page {page} of the tree")
                self.pages[page][position % size] = context
            slot.ring[position % len(slot.ring)] = (position, context)
        slot.next_row = span.end

    def _adopt(self, slot: FakeSlot) -> None:
        """Contexts below the first row are what the adopted pages say; penalties let us check."""
        size = self.page_size
        first = slot.next_row
        slot.contexts = [self.pages[slot.table[p // size]][p % size] for p in range(first)]
        context = ROOT
        for position, token in enumerate(slot.reset.history[:first]):
            context = extend(context, token)
            require(slot.contexts[position] == context, f"hit differs at position {position}")
        slot.started = True

    def _check_pages(self, slot: FakeSlot, upto: int) -> None:
        size = self.page_size
        contexts, pages = slot.contexts, self.pages
        require(len(contexts) == upto, "contexts and rows differ")
        for index in range(upto // size):
            first = index * size
            if pages[slot.table[index]] != contexts[first : first + size]:
                raise PlanError(f"slot {slot.reset.slot}: page {slot.table[index]} is stale")
        rest = upto % size
        if rest and pages[slot.table[upto // size]][:rest] != contexts[upto - rest :]:
            raise PlanError(f"slot {slot.reset.slot}: last page is stale")

    def _check_window(self, slot: FakeSlot, row: int) -> None:
        for position in range(max(slot.reset.floor, row - self.window + 1), row):
            held = slot.ring[position % len(slot.ring)]
            good = held == (position, slot.contexts[position])
            require(good, f"ring of slot {slot.reset.slot} lacks position {position}")

    def _token(self, slot: FakeSlot, given: int, *, single: bool) -> int:
        if given != FROM_DEVICE:
            return given
        require(single, "a device token in a longer span")
        require(slot.last_token is not None, "no token on the device yet")
        return slot.last_token or 0

    def _score(self, slot: FakeSlot, span: RowSpan, scored: ScoredRows) -> PromptScores:
        """B26, B27: only rows of this step that are not replayed."""
        last = scored.first + len(scored.targets)
        require(len(scored.targets) > 0, f"nothing is scored of {span}")
        require(span.computed <= scored.first, f"{span} scores replayed row {scored.first}")
        require(last <= span.end, f"{span} scores row {last - 1}")
        require(last < slot.reset.prompt_len, f"{span} scores a token that is not of the prompt")
        rows = slot.contexts[scored.first : last]
        pairs = zip(rows, scored.targets, strict=True)
        return PromptScores(array("d", [fake_logprob(row, target) for row, target in pairs]))

    def _verify(
        self, slot: FakeSlot, span: RowSpan, fed: array[int], masks: list[TokenMask]
    ) -> list[int]:
        """The tokens of the sampled rows, up to the first that is not the draft that was fed next;
        rows after it are forgotten, though pages and ring hold them."""
        require(len(masks) in (0, span.sample), f"{len(masks)} masks for {span}")
        tokens: list[int] = []
        first = span.end - span.sample
        for index in range(span.sample):
            context = slot.contexts[first + index]
            if index and self.model.is_bad(context):
                break
            mask = masks[index] if masks else None
            tokens.append(self._sample(slot, first + index, mask))
            if index < len(fed) and tokens[-1] != fed[index]:
                break
        slot.next_row = first + len(tokens)
        del slot.contexts[slot.next_row :]
        return tokens

    def _draft(self, slot: FakeSlot) -> list[int]:
        """What the model would say next; each guess is wrong one time in four."""
        guesses: list[int] = []
        context, index = extend(slot.contexts[-1], slot.last_token or 0), slot.num_output
        for place in range(self.draft_tokens):
            token = self.model.sample(context, slot.reset.sampling, index + place)
            if (context >> 5) % 4 == 0:
                token = (token + 1) % self.model.vocab_size
            guesses.append(token)
            context = extend(context, token)
        return guesses

    def _sample(self, slot: FakeSlot, row: int, mask: TokenMask | None) -> int:
        if mask is not None:
            slot.num_output += len(mask.forced)
        known = slot.reset.prompt_len + slot.num_output
        require(row + 1 == known, f"sampled at row {row + 1} of {known} known")
        context = slot.contexts[row]
        token = self.model.sample(context, slot.reset.sampling, slot.num_output)
        if mask is not None:
            allowed = [i for i in range(self.model.vocab_size) if allows(mask, i)]
            require(bool(allowed), "a mask without an id")
            if token not in allowed:
                token = allowed[(context >> 20) % len(allowed)]
        slot.last_token = token
        slot.num_output += 1
        return token


def allows(mask: TokenMask, token: int) -> bool:
    word = token // 32
    return word < len(mask.words) and bool(mask.words[word] >> token % 32 & 1)
