"""Scoring of prompt rows: against a naive softmax, slice by slice, chunk by chunk."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
import torch
from torch import Tensor

from test.loading import load_runner
from test.tiny import tiny_gemma3
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.scores import PromptScores, ScoredRows
from treadle.srt.worker import scoring
from treadle.srt.worker.runner import Runner
from treadle.srt.worker.scoring import HiddenRows, Wanted, read_rows, score, slice_rows

VOCAB = 500
PROMPT = list(range(10, 50))
IDS = [7, 3]


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(9, VOCAB, generator=torch.Generator().manual_seed(3)) * 3


def wanted(top: int = 0, ids: list[int] | None = None) -> Wanted:
    return Wanted(top, torch.tensor(ids or [], dtype=torch.int64))


def test_rows_are_read_as_the_naive_softmax_says(logits: Tensor):
    targets = torch.arange(9) * 50
    got = read_rows(logits, targets, wanted(4, IDS))
    expected = torch.log_softmax(logits.double(), 1)
    for i, row in enumerate(expected):
        assert got.logprobs[i] == pytest.approx(float(row[targets[i]]))
        order = row.argsort(descending=True).tolist()
        assert got.ranks[i] == order.index(int(targets[i])) + 1
        assert got.top_ids[i].tolist() == order[:4]
        assert got.top_logprobs[i].tolist() == pytest.approx(row[order[:4]].tolist())
        assert got.chosen[i].tolist() == pytest.approx(row[IDS].tolist())


def test_more_best_tokens_than_the_vocabulary_has_are_all_of_it(logits: Tensor):
    got = read_rows(logits, torch.zeros(9, dtype=torch.int64), wanted(VOCAB + 5))
    assert got.top_ids.shape == (9, VOCAB)


def test_a_row_has_the_same_bits_in_any_slice(logits: Tensor, monkeypatch):
    targets = list(range(9))
    found = []
    for rows in (1, 2, 4, 9):
        monkeypatch.setattr(scoring, "MAX_SLICE_ROWS", rows)
        found.append(score(lambda hidden: hidden, logits, targets, wanted(3, IDS), VOCAB))
    assert all(x == found[0] for x in found)


@pytest.mark.parametrize(
    ("vocab", "rows"), [(320, 128), (49_152, 128), (262_144, 32), (1 << 30, 1)]
)
def test_logits_held_at_once_are_bounded(vocab: int, rows: int):
    assert slice_rows(vocab) == rows
    assert rows == 1 or rows * vocab <= scoring.SLICE_LOGITS


def test_a_whole_chunk_never_has_logits_at_once():
    """A prompt chunk of 2,048 rows: no call of the head is larger than a slice."""
    calls: list[int] = []

    def head(hidden: Tensor) -> Tensor:
        calls.append(hidden.shape[0])
        return hidden.new_zeros(hidden.shape[0], VOCAB)

    got = score(head, torch.zeros(2048, 4), [1] * 2048, wanted(), VOCAB)
    assert max(calls) <= slice_rows(VOCAB)
    assert sum(calls) == len(got.logprobs) == 2048


def test_hidden_rows_of_a_mixed_plan():
    """Spans: scored and sampled; decode; a chunk with nothing wanted; scored, not sampled."""
    spans = [(1, 0, 0, 10, 1), (2, 30, 30, 31, 1), (3, 0, 0, 8, 0), (4, 4, 4, 12, 0)]
    scored = (ScoredRows(0, 6, array("i", [1] * 3)), ScoredRows(3, 5, array("i", [1] * 7)))
    data = array("i", [x for span in spans for x in span])
    rows = HiddenRows.of(StepPlan(1, data, array("i"), scored=scored))
    # 6 7 8 9* | 30* | | 5..11
    assert rows.sampled.tolist() == [3, 4]
    assert rows.scored == (0, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


def run(runner: Runner, ends: list[int], start: int) -> tuple[list[PromptScores], int]:
    """PROMPT in chunks; scores from `start` on, and the token sampled at its end."""
    params = SamplingParams(max_new_tokens=9, temperature=0.0)
    reset = SlotReset(1, 0, 0, 0, 1, len(PROMPT), 0, params, 2, logprob_ids=array("i", IDS))
    resets: tuple[SlotReset, ...] = (reset,)
    pages: tuple[PageUpdate, ...] = (PageUpdate(1, 0, array("i", range(1, 12))),)
    found: list[PromptScores] = []
    begin, token = 0, -1
    for step, end in enumerate(ends):
        first = max(begin, start - 1)
        targets = array("i", PROMPT[first + 1 : end + 1])
        scored = (ScoredRows(0, first, targets),) if targets else ()
        span = array("i", (1, begin, begin, end, int(end == len(PROMPT))))
        ids = array("i", PROMPT[begin:end])
        result = runner.execute(StepPlan(step, span, ids, resets, pages, scored))
        resets, pages = (), ()
        assert len(result.scores) == len(scored)
        found.extend(result.scores)
        token = result.token_ids[0] if result.token_ids else token
        begin = end
    return found, token


def joined(parts: list[PromptScores]) -> list[list[float]]:
    names = ("logprobs", "ranks", "top_ids", "top_logprobs", "chosen")
    return [[x for part in parts for x in getattr(part, name)] for name in names]


def test_chunks_say_together_what_the_whole_says(folder: Path):
    """To the bit: int8 products and attention give a row the same bits in any step."""
    whole, token = run(load_runner(folder, quantization="q8_0"), [40], 1)
    assert len(whole[0].logprobs) == 39
    assert len(whole[0].top_ids) == len(whole[0].chosen) == 39 * 2
    for size in range(1, 40, 3):
        ends = [*range(size, 40, size), 40]
        parts, last = run(load_runner(folder, quantization="q8_0"), ends, 1)
        assert joined(parts) == joined(whole)
        assert last == token


def test_scores_from_the_middle_are_the_tail_of_all(folder: Path):
    whole, _ = run(load_runner(folder, quantization="q8_0"), [40], 1)
    tail, _ = run(load_runner(folder, quantization="q8_0"), [16, 40], 21)
    assert list(tail[0].logprobs) == list(whole[0].logprobs)[20:]


def test_scores_are_of_the_logits_that_rows_alone_have(folder: Path):
    """Each row as a sampled one: the last row of a prompt that ends there."""
    (whole,), _ = run(load_runner(folder, quantization="q8_0"), [40], 1)
    runner = load_runner(folder, quantization="q8_0")
    params = SamplingParams(max_new_tokens=9, temperature=0.0)
    for end in (1, 7, 23, 39):
        reset = SlotReset(1, 0, 0, 0, 1, end, 0, params)
        pages = (PageUpdate(1, 0, array("i", range(1, 12))),)
        span = array("i", (1, 0, 0, end, 1))
        plan = StepPlan(end, span, array("i", PROMPT[:end]), (reset,), pages)
        with torch.inference_mode():
            logits, _ = runner.forward(plan)
        expected = torch.log_softmax(logits[0].double(), 0)[PROMPT[end]]
        assert whole.logprobs[end - 1] == float(expected)


def test_a_replayed_row_is_never_scored(folder: Path):
    """B27."""
    runner = load_runner(folder, quantization="q8_0")
    params = SamplingParams(max_new_tokens=9)
    reset = SlotReset(1, 0, 20, 0, 1, 40, 0, params)
    scored = (ScoredRows(0, 19, array("i", [1])),)
    pages = (PageUpdate(1, 0, array("i", range(1, 12))),)
    span = array("i", (1, 0, 20, 40, 1))
    with pytest.raises(AssertionError, match="replayed"):
        runner.execute(StepPlan(1, span, array("i", PROMPT), (reset,), pages, scored))
