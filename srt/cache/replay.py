"""Where a replay starts, which rows each layer runs, what it costs, and whether it is exact.

After a prefix hit of H tokens the global KV of [0, H) is there and the window rings are empty. Rows
[s, H) run again to refill them. Every number about those rows is made here and nowhere else: the
scheduler asks `ReplayRule`, the worker reads the same `ReplaySchedule`.

Rows alive before H, drawn for window layers 1..3 (bottom = 1), slope d, depth k:

    entering layer 1   |<----------- k*W + 2d ----------->|H
    after window 1     |<----------- k*W + 2d ----------->|     what it puts out
    after window 2           |<------- k*W + d ---------->|     keys: what window 1 put out
    after window 3                                        |     nobody reads it: nothing is put out

No layer runs a row that no layer above reads: with W-1 keys read below each row, a layer whose
upper neighbour puts out r rows needs to put out r + W - 1 at most. Cutting there changes no result;
with it slope W-1 runs L*(W-1) rows, the exact depth of 3.4, and the top window layer puts out none.
Invariants: rows alive never grow upwards; a global layer passes rows through.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import REPLAY_MODES, CacheSection
from ..errors import BadRequest, ConfigError
from ..model_config import LayerKind, ModelConfig
from .grid import check_grid

MAX_SCHEDULES = 64


@dataclass(frozen=True, slots=True)
class ReplayShape:
    """`slope` rows more per window layer downwards, `depth` windows at the top (3.4b). `grid`: of
    the canonical mode, in tokens; 0 in every other mode and for models without windows. `trims`:
    decoder layers run the last rows of a prompt only (B17)."""

    mode: str
    slope: int
    depth: int
    grid: int = 0
    trims: bool = False


@dataclass(frozen=True, slots=True)
class ReplaySchedule:
    """The row schedule (B39): how many rows before an anchor are alive between layers.

    `alive[l]` rows enter layer l, `alive[l + 1]` are left after it; it never grows upwards. For a
    replay the anchor is the hit length. Trimming upper layers to the last rows of a prompt is the
    same value with another `alive` and the prompt's end as anchor.
    """

    alive: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(upper > lower for lower, upper in zip(self.alive, self.alive[1:], strict=False)):
            raise ValueError(f"rows alive grow upwards: {self.alive}")

    @classmethod
    def staircase(
        cls, kinds: tuple[LayerKind, ...], window: int, slope: int, depth: int
    ) -> ReplaySchedule:
        """Schedule of a replay: `kinds` bottom first, `window` counts the row itself."""
        left = kinds.count(LayerKind.WINDOW)
        wanted = [depth * window + slope * (left - 1) if left else 0]
        for kind in kinds:
            left -= kind is LayerKind.WINDOW
            wanted.append(depth * window + slope * left if kind is LayerKind.WINDOW else wanted[-1])
        read = reach(kinds, window)
        return cls(tuple(min(w, r) for w, r in zip(wanted, read, strict=True)))

    @property
    def num_layers(self) -> int:
        return len(self.alive) - 1

    def entry_start(self, layer: int, hit: int) -> int:
        """First row alive entering `layer`: the lowest row whose keys it computes."""
        return max(0, hit - self.alive[layer])

    def exit_start(self, layer: int, hit: int) -> int:
        """First row alive after `layer`: the lowest row it puts out."""
        return max(0, hit - self.alive[layer + 1])


def reach(kinds: tuple[LayerKind, ...], window: int) -> tuple[int, ...]:
    """Rows before a hit that a result at or after it can depend on, per gap between layers.

    Entry l is for the input of layer l. A schedule with these rows everywhere is exact (3.4).
    """
    rows = [0]
    for kind in reversed(kinds):
        rows.append(rows[-1] + (window - 1 if kind is LayerKind.WINDOW else 0))
    return tuple(reversed(rows))


class ScheduleCache:
    """The schedules of one model by slope and depth. Bounded, since shapes come with requests."""

    __slots__ = ("_kinds", "_window", "_found")

    def __init__(self, kinds: tuple[LayerKind, ...], window: int) -> None:
        self._kinds = kinds
        self._window = window
        self._found: dict[tuple[int, int], ReplaySchedule] = {}

    def get(self, slope: int, depth: int) -> ReplaySchedule:
        found = self._found.get((slope, depth))
        if found is None:
            if len(self._found) >= MAX_SCHEDULES:
                self._found.clear()
            found = ReplaySchedule.staircase(self._kinds, self._window, slope, depth)
            self._found[slope, depth] = found
        return found

    def __len__(self) -> int:
        return len(self._found)


class ReplayRule:
    """Adoption and provenance of hits for one model (B1-B3, B31). Immutable but for a cache."""

    __slots__ = (
        "kinds",
        "window",
        "default",
        "min_saving",
        "num_windows",
        "takes_short",
        "_grid",
        "_plain",
        "_reach",
        "_schedules",
        "_trims",
    )

    def __init__(
        self,
        kinds: tuple[LayerKind, ...],
        window: int,
        default: ReplayShape,
        min_saving: int,
        grid: int = 0,
    ) -> None:
        """`min_saving`: tokens a hit must save to be taken. `grid`: of the canonical mode, checked
        by `check_grid`; 0 without one. Raises: ConfigError."""
        self.kinds = kinds
        self.window = window
        self.num_windows = kinds.count(LayerKind.WINDOW)
        self.min_saving = min_saving
        self._grid = grid if self.num_windows else 0
        self._plain = ReplayShape("bounded", max(default.slope, 0), default.depth)
        self._reach = reach(kinds, window)
        self._schedules = ScheduleCache(kinds, window)
        self._trims = default.trims
        self.takes_short = False  # hits of no more tokens than a replay runs
        self.default = self._settle(default)

    @classmethod
    def from_config(cls, model: ModelConfig, cache: CacheSection) -> ReplayRule:
        """Raises: ConfigError for a value out of range or not settled by `resolve`."""
        if cache.adopt_min_saving < 0:
            raise ConfigError(f"--adopt-min-saving {cache.adopt_min_saving}: must be 0 or more")
        if model.window_layers:
            check_grid(cache.canonical_grid, model.window, cache.page_size)
        trims = cache.trim_rule in ("prompt", "chunk")
        shape = ReplayShape(cache.replay_mode, cache.replay_slope, cache.replay_depth, trims=trims)
        kinds = tuple(layer.kind for layer in model.layers)
        rule = cls(kinds, model.window, shape, cache.adopt_min_saving, cache.canonical_grid)
        rule.takes_short = cache.short_hits == "replay"
        return rule

    def shape(self, mode: str | None, slope: int | None) -> ReplayShape:
        """The shape of a request that asks for `mode` and `slope`; None means the default's.

        Raises: BadRequest naming field, value and limit.
        """
        asked = self.default.mode if mode is None else mode
        if asked not in REPLAY_MODES:
            raise BadRequest(
                f"replay mode {asked!r} must be one of {REPLAY_MODES}", param="swa_replay"
            )
        if slope is not None and self.num_windows and not 0 <= slope < self.window:
            limit = self.window - 1
            raise BadRequest(f"replay slope {slope} must be 0..{limit}", param="swa_replay_slope")
        if asked == "exact":
            return self._exact()
        if asked == "canonical" and self.num_windows and not self._grid:
            raise BadRequest("replay mode 'canonical' has no grid here", param="swa_replay")
        plain = self._plain
        return self._shape(asked, plain.slope if slope is None else slope, plain.depth)

    def namespace(self, shape: ReplayShape) -> tuple[tuple[str, str], ...]:
        """Fields of the cache scope: canonical pages and others never mix (T27)."""
        if not shape.grid:
            return ()
        return (("replay", f"{shape.mode}:{shape.grid}:{shape.slope}:{shape.depth}"),)

    def schedule(self, shape: ReplayShape) -> ReplaySchedule:
        return self._schedules.get(shape.slope, shape.depth)

    def longest_run(self, shape: ReplayShape) -> int:
        """Rows replayed in the lowest layer when the hit is long: R of B14 and B15."""
        return self.schedule(shape).alive[0]

    def start(self, shape: ReplayShape, hit: int) -> int:
        """First row to run, s; equal to `hit` when nothing is replayed."""
        return self.schedule(shape).entry_start(0, hit)

    def cost_rows(self, shape: ReplayShape, hit: int) -> int:
        """Mean over all layers of the replayed rows they put out, rounded up."""
        rows = self.schedule(shape).alive[1:]
        return -(-sum(min(r, hit) for r in rows) // len(rows))

    def adopt(self, shape: ReplayShape, hit: int) -> int:
        """`hit` (page-aligned, B1) or 0 when taking it saves too little (B2)."""
        if not self.num_windows:
            return hit
        if shape.mode == "off":
            return 0
        if shape.grid:  # a cold run replays there too: every hit saves all of its new rows
            return hit if hit >= self.min_saving else 0
        replayed = self.longest_run(shape)
        if shape.slope:  # lower layers run more than others: what counts is the mean
            replayed = self.cost_rows(shape, replayed)
        if hit <= replayed or hit - self.cost_rows(shape, hit) < self.min_saving:
            return hit if self.takes_short else 0
        return hit

    def is_cheaper(self, shape: ReplayShape, held: int, hit: int) -> bool:
        """Whether a hit of `held` tokens whose window is there costs no more rows than one of
        `hit` with its replay; of equals it is closer to a cold run."""
        if held < max(1, self.min_saving):
            return False
        return not hit or held >= hit - self.cost_rows(shape, hit)

    def shares_windows(self, shape: ReplayShape) -> bool:
        """Whether the windows of such requests are, wherever they end, what others go on from."""
        return self.num_windows > 0 and shape.mode in ("bounded", "exact")

    def is_exact(self, shape: ReplayShape, hit: int) -> bool:
        """Whether a replay after `hit` leaves the state of a cold run (B31): each gap between
        layers has every row that a later result can depend on. A start at row 0 is not enough:
        upper layers of a staircase may still drop rows that are read."""
        alive = self.schedule(shape).alive
        return all(rows >= min(hit, read) for rows, read in zip(alive, self._reach, strict=True))

    def needs_exact(self, shape: ReplayShape) -> bool:
        """Exact requests adopt exact nodes only (B32). Canonical ones have a namespace instead."""
        return shape.mode == "exact" and self.num_windows > 0

    def needs_whole(self, shape: ReplayShape) -> bool:
        """Whether the window of a trimmed request is of no use: its upper layers lack rows."""
        return self.needs_exact(shape) or (self._trims and not shape.trims)

    def is_deterministic(self, shape: ReplayShape) -> bool:
        """Results must not depend on others' (3.11): not rebound while running (T16)."""
        return shape.mode != "bounded" and self.num_windows > 0

    def generation(self, shape: ReplayShape, point: int) -> int:
        """B34 of rows that follow the canonical point `point`, by anyone: restarts behind them."""
        return 0 if self.is_exact(shape, point) else point // shape.grid

    def check_chunk(self, chunk_tokens: int, page_size: int) -> None:
        """Raises: ConfigError when no step could ever hold a bounded replay (B14)."""
        need = self.longest_run(self.default) + page_size
        if self.default.mode == "bounded" and self.num_windows and chunk_tokens < need:
            raise ConfigError(
                f"--chunked-prefill-size {chunk_tokens}: must be at least {need}, a replay of "
                f"{need - page_size} rows (window {self.window}, slope {self.default.slope}, "
                f"depth {self.default.depth}) and a page of {page_size}"
            )

    def _settle(self, shape: ReplayShape) -> ReplayShape:
        if shape.mode not in REPLAY_MODES:
            raise ConfigError(f"--swa-replay-mode {shape.mode!r}: must be one of {REPLAY_MODES}")
        if shape.mode == "exact":
            return self._exact()
        if self.num_windows and not 0 <= shape.slope < self.window:
            raise ConfigError(f"--swa-replay-slope {shape.slope}: must be 0..{self.window - 1}")
        if shape.depth < 1:
            raise ConfigError(f"--swa-replay-depth {shape.depth}: must be 1 or more")
        return self._shape(shape.mode, shape.slope, shape.depth)

    def _shape(self, mode: str, slope: int, depth: int) -> ReplayShape:
        grid = self._grid if mode == "canonical" else 0
        return ReplayShape(mode, slope, depth, grid, self._trims and mode == "bounded")

    def _exact(self) -> ReplayShape:
        return ReplayShape("exact", max(self.window - 1, 0), 1)
