"""Every type that crosses a process boundary. Frozen values; `net/wire.py` turns them into frames.

Owns no behaviour beyond reading itself. Fields of type `array[int]` and `array[float]` travel as
raw little-endian int32 and float64 frames beside the JSON frame, because long lists as text are the
one thing that costs.

    tokenizer --GenerateRequest, AbortRequest, AbortAll, Flush, Profile, StatsRequest--> scheduler
    tokenizer --SnapshotRequest--> scheduler          tokenizer <--Snapshot-- scheduler
    tokenizer --TokenBytes, once at start, unless grammars are off------------> scheduler
    tokenizer <--TokenOutput, Done, Stats------------------------------------- scheduler
    scheduler --StepPlan, Profile--> workers          scheduler <--StepResult, Done-- worker 0
    all       --Ready, Progress, Failed--> launcher --Ready, Failed, Shutdown--> all
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from .arrays import ids
from .lifecycle import Failed, Progress, Ready, Shutdown
from .profiling import Profile
from .scores import PromptScores, ScoredRows
from .snapshot import Snapshot, SnapshotRequest
from .token_masks import Grammar, TokenBytes, TokenMask

SlotId = NewType("SlotId", int)
RequestId = NewType("RequestId", str)

SPAN_FIELDS = 5
GREEDY_BELOW = 1e-6  # temperature
FROM_DEVICE = -1  # token id in a plan that the worker takes from the slot's device state


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What the sampler and the finish rules need. Stop strings stay in the tokenizer process.

    Units: tokens. `temperature` below `GREEDY_BELOW` is greedy. `top_k` -1 is off. `seed` None
    draws one at admission. Repetition penalty covers prompt and output, the other two penalties
    output only.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()  # includes the model's EOS ids unless ignore_eos
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: Grammar | None = None

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        return (
            self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """`session` is a hint whose windows to prefer; it has no effect on results (D18).

    `logprob_start` is the first prompt token whose logprob is wanted, at most the prompt's length;
    None: of no prompt token. `top_logprobs` and `logprob_ids` (further ids whose logprobs are
    wanted) are for each position, of prompt and output."""

    rid: RequestId
    prompt_ids: array[int]
    sampling: SamplingParams
    namespace: tuple[tuple[str, str], ...] = ()  # typed cache-scope fields, rule T26
    session: str | None = None
    replay_mode: str | None = None  # one of `config.REPLAY_MODES`; None: the server's default
    replay_slope: int | None = None
    top_logprobs: int | None = None  # None: no logprobs of output; 0: the sampled token's only
    priority: int = 0  # higher is more important; no effect unless the server honours it
    logprob_start: int | None = None
    logprob_ids: array[int] = field(default_factory=ids)
    queue_timeout_s: float | None = None  # from arrival to the first admission
    timeout_s: float | None = None  # from arrival to the end
    fork_of: RequestId | None = None  # of equal prompt and sent before: it prefills for both


@dataclass(frozen=True, slots=True)
class AbortRequest:
    rid: RequestId
    reason: str  # "client" (disconnect), "user" (/abort_request), "stop" (stop string seen)


@dataclass(frozen=True, slots=True)
class AbortAll:
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseSessions:
    """Nothing more comes in these sessions. `owner`: the first fields of the namespaces that they
    may have used."""

    sessions: tuple[str, ...]
    owner: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """Empty the prefix cache."""

    token: int


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a Flush or Profile with the same token."""

    token: int
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class StatsRequest:
    token: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and gauges, read from state when asked. Keys are plain names, with a label
    `pages{state=free}`; `metric_names.py` knows what each is called outside."""

    token: int
    counters: dict[str, float]
    gauges: dict[str, float]


class RowSpan(NamedTuple):
    """Consecutive rows `[start, end)` of one request in one step. Rows below `computed` are
    replayed: they refill windows and write no global KV. Rows from `computed` on are new and write
    both. `sample`: of how many of the last rows the logits are sampled, 0 or 1; more to verify
    drafts, which are the ids of all of these rows but the first.
    """

    slot: int
    start: int
    computed: int
    end: int
    sample: int


@dataclass(frozen=True, slots=True)
class PageUpdate:
    """Write `pages` into the page-table row of `slot`, from index `first` on."""

    slot: int
    first: int
    pages: array[int]


@dataclass(frozen=True, slots=True)
class SlotReset:
    """A request enters (or re-enters) a slot: rings are emptied, sampler state is replaced.

    `floor` is the lowest position in the rings, and the first that will be run; `hit` is the
    adopted length H. With `source` not 0 the rings are that slot's, copied unless it is `slot`
    itself, and hold the window of H: `floor` is the lowest position in it, rows run from H, and
    what is held of H and above is nobody's (B5, B24). Resets are carried out in order, before the
    step's rows. The replay shape of the hit: `slope` rows more per layer downwards, `depth`
    windows at the top (uniform replay is slope 0). `num_output` sampled tokens exist already
    (resume); `history` holds all known ids when penalties need them, else it is empty."""

    slot: int
    floor: int
    hit: int
    slope: int
    depth: int
    prompt_len: int
    num_output: int
    sampling: SamplingParams
    top_logprobs: int | None = None
    history: array[int] = field(default_factory=ids)
    trim_end: int = 0  # of a prompt whose decoder layers run its last rows only; 0: all
    lookback: array[int] = field(default_factory=ids)  # ids before `floor`, newest first
    logprob_ids: array[int] = field(default_factory=ids)
    source: int = 0


@dataclass(frozen=True, slots=True)
class Rewind:
    """A request starts its windows anew at a point of the canonical grid: rings are emptied as by
    `SlotReset`, everything else of the slot stays. Fields as there; `hit` is the point, up to which
    global KV is there and is not written again."""

    slot: int
    floor: int
    hit: int
    slope: int
    depth: int
    lookback: array[int] = field(default_factory=ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward. `span_data` holds `SPAN_FIELDS` ints per span; `token_ids` one id per row in
    span order, `FROM_DEVICE` where the id is the slot's last sampled token, still on the device.
    `scored` is in span order."""

    step: int
    span_data: array[int]
    token_ids: array[int]
    resets: tuple[SlotReset, ...] = ()
    pages: tuple[PageUpdate, ...] = ()
    scored: tuple[ScoredRows, ...] = ()
    rewinds: tuple[Rewind, ...] = ()
    masks: tuple[TokenMask, ...] = ()

    def spans(self) -> Iterator[RowSpan]:
        data = self.span_data
        for i in range(0, len(data), SPAN_FIELDS):
            yield RowSpan(*data[i : i + SPAN_FIELDS])


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logs, of the sampled token, the best ones and the ids that were asked for. Of the
    raw model softmax, or of the distribution drawn from (`--logprobs-mode`).
    """

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()
    chosen: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """Answer of worker rank 0. One id per sampled span, in plan order. `bad` holds indexes of
    sampled spans whose logits were not finite (rule T13). `logprobs` is empty when no slot asked,
    else as long as `token_ids` with None where not asked. `layer_rows` are the rows that
    entered each layer, bottom first; `run_ms` the time of the whole step and `sample_ms` what of it
    is after the logits. `scores` answers `StepPlan.scored`.

    A worker with a draft head gives at least one id per sampled span, `counts` of them: accepted
    drafts, then one of the model's own; and `drafts` of what may follow, `draft_counts` per span,
    of which the head is sure of the first `sure_counts`.
    """

    step: int
    token_ids: array[int]
    logprobs: tuple[TokenLogprob | None, ...] = ()
    bad: tuple[int, ...] = ()
    layer_rows: tuple[int, ...] = ()
    run_ms: float = 0.0
    sample_ms: float = 0.0
    scores: tuple[PromptScores, ...] = ()
    counts: array[int] = field(default_factory=ids)  # empty: one each
    drafts: array[int] = field(default_factory=ids)
    draft_counts: array[int] = field(default_factory=ids)
    sure_counts: array[int] = field(default_factory=ids)  # empty: of all


@dataclass(slots=True)
class Usage:
    """B37: cached and replayed are those of the first admission and never change. B34: how many
    approximations lie behind the newest row; 0 is what a cold run computes.

    Like `RequestOutput` not frozen, though nobody changes one: a step of 256 requests makes 256 of
    each, and with frozen ones that is 0.35 ms of its 0.7 ms of planning and committing.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    replayed_tokens: int
    approx_generation: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """`reason`: "stop" (`matched` is the id), "length", "abort" (`message`, `status`).

    Not `was_admitted`: no work was spent on the request, another server may be tried at once.
    """

    reason: str
    matched: int | None = None
    message: str = ""
    status: int = 200
    was_admitted: bool = True


@dataclass(slots=True)
class RequestOutput:
    rid: RequestId
    token_ids: tuple[int, ...]
    usage: Usage
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob | None, ...] = ()
    queue_s: float = 0.0  # admission minus arrival, of the first admission


@dataclass(frozen=True, slots=True)
class PromptOutput:
    """Scores of the prompt tokens of a request from index `first` on. Each token comes once."""

    rid: RequestId
    first: int
    scores: PromptScores


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """The new ids of all requests of a step; also terminal events that no step caused. `prompts`
    belong before `outputs`: the last of a prompt comes with the request's first token or earlier.
    """

    outputs: tuple[RequestOutput, ...]
    prompts: tuple[PromptOutput, ...] = ()


Message = (
    GenerateRequest
    | TokenBytes
    | AbortRequest
    | AbortAll
    | ReleaseSessions
    | Flush
    | Profile
    | Done
    | StatsRequest
    | Stats
    | SnapshotRequest
    | Snapshot
    | StepPlan
    | StepResult
    | TokenOutput
    | Ready
    | Progress
    | Failed
    | Shutdown
)

TAGS: dict[str, type[Message]] = {
    "gen": GenerateRequest,
    "token_bytes": TokenBytes,
    "abort": AbortRequest,
    "abort_all": AbortAll,
    "release": ReleaseSessions,
    "flush": Flush,
    "profile": Profile,
    "done": Done,
    "stats_req": StatsRequest,
    "stats": Stats,
    "snapshot_req": SnapshotRequest,
    "snapshot": Snapshot,
    "plan": StepPlan,
    "result": StepResult,
    "out": TokenOutput,
    "ready": Ready,
    "progress": Progress,
    "failed": Failed,
    "shutdown": Shutdown,
}
