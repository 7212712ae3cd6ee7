"""Per-slot state of one worker: page-table rows, last token, replay rows, sampler state.

The scheduler decides, this remembers: a plan carries only differences. Slot 0 and page 0 are sinks.
Everything of a slot is replaced by `reset` and by nothing else (rule S6), also when the rings of
the slot stay: the floor is then that of the window which is there. Only a canonical request starts
its windows anew at each point of its grid.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..cache.replay import ReplaySchedule
from ..messages import PageUpdate, Rewind, SamplingParams, SlotReset
from ..token_masks import TokenMask
from .scoring import Wanted

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Drafted:
    """Guesses at a request's output from index `first` on. `logits` [k, V] are what they were drawn
    by; None when each is the best. The draft head is sure of the first `num_sure`."""

    first: int
    ids: tuple[int, ...]
    logits: Tensor | None
    num_sure: int

    def at(self, index: int) -> int | None:
        """Place of the draft of output `index`; None without."""
        place = index - self.first
        return place if 0 <= place < len(self.ids) else None


@dataclass(slots=True, eq=False)
class SamplerSlot:
    """What the sampler knows of one request. `output` counts only when penalties need it. `masks`
    [V'] are there for a request with a grammar, from the plan to the ids that they allow: of the
    next draw, and of those after it when drafts are verified. `drafted` is of the last step.
    """

    params: SamplingParams
    top_logprobs: int | None  # None: no logprobs of output
    num_output: int
    prompt: frozenset[int]
    output: Counter[int]
    logprob_ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    masks: list[Bool] = field(default_factory=list)
    drafted: Drafted | None = None

    @classmethod
    def from_reset(cls, reset: SlotReset) -> SamplerSlot:
        history = reset.history
        return cls(
            params=reset.sampling,
            top_logprobs=reset.top_logprobs,
            num_output=reset.num_output,
            prompt=frozenset(history[: reset.prompt_len]),
            output=Counter(history[reset.prompt_len :]),
            logprob_ids=torch.tensor(reset.logprob_ids, dtype=torch.int64),
        )

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.top_logprobs or 0, self.logprob_ids)

    @property
    def allowed(self) -> Bool | None:
        """Which ids the next draw may give."""
        return self.masks[0] if self.masks else None

    def has_ended(self, token: int) -> bool:
        """Whether `token`, the newest, is the last that the request may have."""
        p = self.params
        is_stop = token in p.stop_token_ids and self.num_output > p.min_new_tokens
        return is_stop or self.num_output >= p.max_new_tokens

    def constrain(self, mask: TokenMask) -> None:
        """For the next draw that has none; the forced ids were output without one."""
        for token in mask.forced:
            self.took(token)
        words = np.array(mask.words, dtype="<i4")
        self.masks.append(np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_))

    def took(self, token: int) -> None:
        del self.masks[:1]
        self.num_output += 1
        if self.params.has_penalties:
            self.output[token] += 1


@dataclass(slots=True, eq=False)
class SlotTable:
    """Shapes: S slots, L layers, G ids of an n-gram. `entry` and `exit` hold the row schedule of
    the slot's replay: first position alive on entering and on leaving each layer (0 when nothing is
    replayed). `settled`: from this position on all layers run the same rows with the same floor.
    """

    page_table: npt.NDArray[np.int32]  # [S, max_pages]
    page_tensor: Tensor  # the same memory
    last_token: Int64  # [S]
    floor: Int64  # [S] first position that was run since the reset
    entry: Int64  # [S, L]
    exit: Int64  # [S, L]
    settled: Int64  # [S]
    trim_end: Int64  # [S] end of a prompt whose upper layers run its last rows only; 0: all rows
    recent: Int64  # [S, G-1] ids at the positions before the next row, newest first; -1 none
    trims: bool  # whether prompts are trimmed at all
    sampler: list[SamplerSlot | None]

    @classmethod
    def allocate(
        cls,
        num_slots: int,
        max_pages: int,
        num_layers: int,
        lookback: int = 0,
        *,
        trims: bool = False,
    ) -> SlotTable:
        """`lookback`: ids before a row that the model reads of its past."""
        pages = np.zeros((num_slots, max_pages), dtype=np.int32)
        return cls(
            page_table=pages,
            page_tensor=torch.from_numpy(pages),
            last_token=np.zeros(num_slots, dtype=np.int64),
            floor=np.zeros(num_slots, dtype=np.int64),
            entry=np.zeros((num_slots, num_layers), dtype=np.int64),
            exit=np.zeros((num_slots, num_layers), dtype=np.int64),
            settled=np.zeros(num_slots, dtype=np.int64),
            trim_end=np.zeros(num_slots, dtype=np.int64),
            recent=np.full((num_slots, lookback), -1, dtype=np.int64),
            trims=trims,
            sampler=[None] * num_slots,
        )

    def reset(self, reset: SlotReset, schedule: ReplaySchedule | None) -> None:
        """Give the slot to a request. `schedule` is None when nothing is replayed."""
        self.sampler[reset.slot] = SamplerSlot.from_reset(reset)
        self.trim_end[reset.slot] = reset.trim_end if self.trims else 0
        self.restart(reset, schedule)

    def restart(self, reset: SlotReset | Rewind, schedule: ReplaySchedule | None) -> None:
        """The slot's windows begin at `reset.floor`; nothing else changes."""
        slot = reset.slot
        self.floor[slot] = reset.floor
        self.settled[slot] = max(reset.hit if schedule else 0, self.trim_end[slot])
        self.recent[slot] = -1
        known = reset.lookback[: self.recent.shape[1]]
        self.recent[slot, : len(known)] = known
        layers = range(self.entry.shape[1])
        if schedule is None:
            self.entry[slot] = 0
            self.exit[slot] = 0
        else:
            self.entry[slot] = [schedule.entry_start(i, reset.hit) for i in layers]
            self.exit[slot] = [schedule.exit_start(i, reset.hit) for i in layers]

    def constrain(self, mask: TokenMask) -> None:
        state = self.sampler[mask.slot]
        assert state is not None
        state.constrain(mask)

    def update_pages(self, update: PageUpdate) -> None:
        end = update.first + len(update.pages)
        self.page_table[update.slot, update.first : end] = update.pages
