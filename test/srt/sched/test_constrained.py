"""Requests with a grammar in the scheduler: held, masked, forced, and beside others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random

import pytest

from test.fake_model import FakeModel
from test.grammars import EOS, HeldExecutor, InlineExecutor, make_store, pieces
from test.srt.sched.conftest import Loop, MakeLoop
from treadle.srt.grammar.compile import from_json_schema
from treadle.srt.messages import FROM_DEVICE, AbortRequest, RequestId
from treadle.srt.token_masks import Grammar, GrammarKind

SIZE = 200
SPELLED = pieces(SIZE)
MODEL = FakeModel(vocab_size=SIZE, stop_rate=0.0)
HEX = Grammar(GrammarKind.REGEX, "[0-9a-f]{25}")
DIGITS = Grammar(GrammarKind.REGEX, "[0-9]{12}")
TEXT = Grammar(GrammarKind.REGEX, "[ -~]{40}")
PERSON = from_json_schema(
    {
        "type": "object",
        "properties": {"name": {"enum": ["ann", "bob"]}, "ok": {"type": "boolean"}},
        "required": ["name", "ok"],
        "additionalProperties": False,
    }
)
Make = Callable[..., Loop]


@pytest.fixture
def make(make_loop: MakeLoop) -> Make:
    def build(**options: object) -> Loop:
        settings = {"model": MODEL, "grammars": make_store(InlineExecutor(), SIZE)} | options
        return make_loop(**settings)

    return build


def start(loop: Loop, rid: str, grammar: Grammar | None, **options: object) -> None:
    given = {"max_new_tokens": 40, "stop_token_ids": (EOS,), "grammar": grammar} | options
    loop.add(rid, [1, 2, 3, 4, 5], **given)


def text(loop: Loop, rid: str) -> str:
    ids = loop.text[rid]
    return b"".join(SPELLED[i] for i in ids if i != EOS).decode()


def test_answer_matches_its_grammar_and_stops_when_it_is_complete(make: Make):
    loop = make()
    start(loop, "a", DIGITS)
    loop.drain()
    assert re.fullmatch("[0-9]{12}", text(loop, "a"))
    finish = loop.done["a"].finish
    assert finish is not None
    assert (finish.reason, finish.matched) == ("stop", None)
    assert EOS not in loop.text["a"]


def test_workers_get_masks_and_not_the_grammar(make: Make):
    loop = make()
    start(loop, "a", DIGITS)
    loop.drain()
    assert all(reset.sampling.grammar is None for plan in loop.plans for reset in plan.resets)
    assert sum(len(plan.masks) for plan in loop.plans) == 12


@pytest.mark.parametrize("overlap", [True, False])
def test_others_are_planned_ahead_and_have_the_same_text_beside_a_grammar(
    make: Make, overlap: bool
):
    alone = make(overlap=overlap)
    start(alone, "plain", None)
    alone.drain()
    loop = make(overlap=overlap)
    start(loop, "plain", None)
    start(loop, "json", PERSON)
    loop.drain()
    assert loop.text["plain"] == alone.text["plain"]
    assert json.loads(text(loop, "json"))["name"] in ("ann", "bob")
    ahead = [sum(t == FROM_DEVICE for t in plan.token_ids) for plan in loop.plans]
    assert (sum(ahead) > 30) == overlap


def test_forced_tokens_are_run_in_one_span_and_counted_as_output(make: Make):
    loop = make()
    start(loop, "a", PERSON)
    loop.drain()
    spans = [span for plan in loop.plans for span in plan.spans()]
    assert max(span.end - span.start for span in spans[1:]) > 1
    sampled = sum(span.sample for span in spans)
    assert sampled < len(loop.text["a"])
    assert loop.done["a"].usage.completion_tokens == len(loop.text["a"])
    assert loop.counters()["generation_tokens"] == len(loop.text["a"])
    assert json.loads(text(loop, "a"))


def test_logprobs_turn_forcing_off_and_the_ids_are_the_same(make: Make):
    """A forced id has no logprob to tell."""
    choice = Grammar(GrammarKind.REGEX, "the only [ab] answer there is")
    loop = make()
    start(loop, "forced", choice)
    start(loop, "sampled", choice, top_logprobs=0)
    loop.drain()
    assert loop.text["forced"] == loop.text["sampled"]
    assert re.fullmatch("the only [ab] answer there is", text(loop, "forced"))
    spans = [s for plan in loop.plans for s in plan.spans() if s.start > 4]
    assert max(s.end - s.start for s in spans) > 1


@pytest.mark.parametrize("limit", range(1, 12))
def test_forced_tokens_respect_the_token_limit(make: Make, limit: int):
    loop = make()
    start(loop, "a", Grammar(GrammarKind.REGEX, "abcdefghij"), max_new_tokens=limit)
    loop.drain()
    assert text(loop, "a") == "abcdefghij"[:limit]
    assert loop.done["a"].finish.reason == ("length" if limit <= 10 else "stop")


def test_forced_stop_id_ends_the_answer(make: Make):
    loop = make()
    start(loop, "a", Grammar(GrammarKind.REGEX, "abcdefghij"), stop_token_ids=(EOS, ord("e")))
    loop.drain()
    assert text(loop, "a") == "abcde"
    assert loop.done["a"].finish.matched == ord("e")


def test_ignored_eos_is_not_allowed_and_the_end_of_the_grammar_still_is_one(make: Make):
    loop = make()
    start(loop, "a", Grammar(GrammarKind.REGEX, "[ab]{1,30}"), stop_token_ids=())
    loop.drain()
    assert re.fullmatch("[ab]{30}", text(loop, "a"))
    assert loop.done["a"].finish.reason == "stop"


def test_held_request_waits_alone_and_can_be_aborted(make: Make):
    """T34: abort of a request whose grammar is being compiled."""
    executor = HeldExecutor()
    loop = make(grammars=make_store(executor, SIZE))
    start(loop, "held", DIGITS)
    start(loop, "plain", None)
    assert loop.gauges()["held"] == 1
    loop.step()
    loop.step()
    assert loop.text["plain"]
    loop.scheduler.abort(AbortRequest(RequestId("held"), "client"), loop.now)
    loop.collect()
    assert loop.done["held"].finish.status == 499
    assert loop.counters()["aborts{reason=client,phase=grammar}"] == 1
    executor.work()
    loop.drain()
    assert loop.gauges()["held"] == 0
    assert loop.text["held"] == []


def test_grammar_that_fails_in_the_vocabulary_is_refused_before_any_token(make: Make):
    loop = make()
    start(loop, "bad", Grammar(GrammarKind.REGEX, "(a"))
    start(loop, "impossible", Grammar(GrammarKind.REGEX, "\u4e00"))
    loop.drain()
    for rid in ("bad", "impossible"):
        assert loop.done[rid].finish.status == 400
        assert loop.text[rid] == []
    assert "unclosed group" in loop.done["bad"].finish.message
    assert "vocabulary" in loop.done["impossible"].finish.message


def test_grammars_are_refused_where_they_are_switched_off(make: Make):
    loop = make(grammars=None)
    start(loop, "a", DIGITS)
    assert loop.done["a"].finish.status == 501


def test_preempted_request_goes_on_in_its_grammar(make: Make):
    """T43: the state of the grammar is kept over a preemption."""
    loop = make(num_pages=14, max_running=4, conservativeness=0.01)
    for i in range(4):
        long = Grammar(GrammarKind.REGEX, "[0-9a-f]{38}")
        start(loop, f"r{i}", PERSON if i % 2 else long, seed=i)
    loop.drain()
    assert loop.counters()["preemptions"] > 0
    for i in range(4):
        if i % 2:
            json.loads(text(loop, f"r{i}"))
        else:
            assert re.fullmatch("[0-9a-f]{38}", text(loop, f"r{i}"))


def test_others_go_on_while_a_row_is_made_for_a_request_with_accepted_drafts(make: Make):
    executor = HeldExecutor()
    loop = make(grammars=make_store(executor, SIZE), draft_tokens=5, overlap=False)
    start(loop, "a", TEXT)
    start(loop, "plain", None, max_new_tokens=200)
    for turn in range(40):
        if turn % 2:
            executor.work()
        assert loop.plan() is not None
        loop.commit()
    assert loop.counters()["spec_accepted_tokens"] > 0
    assert len(loop.text["a"]) > 1


@pytest.mark.parametrize("steps", range(1, 6))
@pytest.mark.parametrize("size", range(16, 24))
def test_request_that_resumes_in_chunks_takes_no_drafts_from_before(
    make: Make, size: int, steps: int
):
    """T43: those that its last row allowed come when it holds no pages for them."""
    executor = HeldExecutor()
    loop = make(
        grammars=make_store(executor, SIZE),
        draft_tokens=5,
        prefix_cache=False,
        chunk_tokens=16,
    )
    loop.add("a", [20] * size, max_new_tokens=40, stop_token_ids=(EOS,), grammar=TEXT, seed=3)
    for _ in range(steps + 2):
        executor.work()
        loop.step()
    (request,) = loop.scheduler._running
    loop.scheduler._preempt(request)
    while loop.scheduler.has_work:
        executor.work()
        loop.step()
    assert re.fullmatch("[ -~]{40}", text(loop, "a"))


def test_request_preempted_while_its_mask_is_made_is_held_until_it_is_there(make: Make):
    executor = HeldExecutor()
    loop = make(overlap=False, grammars=make_store(executor, SIZE))
    start(loop, "a", DIGITS)
    executor.work()
    loop.step()
    (request,) = loop.scheduler._running
    assert executor.held  # its next row
    loop.scheduler._preempt(request)
    assert loop.gauges()["held"] == 1
    assert loop.plan() is None
    executor.work()
    for _ in range(100):
        executor.work()
        if not loop.scheduler.has_work:
            break
        loop.step()
    assert re.fullmatch("[0-9]{12}", text(loop, "a"))


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_grammar_work_gives_valid_answers(make: Make, seed: int, draft_tokens: int):
    """Arrivals, aborts, preemptions, and rows of grammars that come late, all at random."""
    rng = Random(seed)
    executor = HeldExecutor()
    loop = make(
        num_pages=20,
        max_running=5,
        chunk_tokens=24,
        conservativeness=0.01,
        grammars=make_store(executor, SIZE),
        draft_tokens=draft_tokens,
    )
    names: list[str] = []
    aborted: set[str] = set()
    for turn in range(400):
        if turn < 300 and rng.random() < 0.15:
            names.append(arrive(loop, turn, rng))
        if names and rng.random() < 0.05:
            name = rng.choice(names)
            aborted |= {name} - loop.done.keys()
            loop.scheduler.abort(AbortRequest(RequestId(name), "client"), loop.now)
            loop.collect()
        executor.work(rng.randint(0, 3))
        while loop.plan() is not None and rng.random() < 0.7:
            pass
        if loop.scheduler.in_flight:
            loop.commit()
    settle(loop, executor)
    assert set(names) == loop.done.keys()
    for name in set(names) - aborted:
        check_text(name, text(loop, name))
    assert any(not name.startswith("plain") for name in set(names) - aborted)
    loop.cache.check()


PRINTABLE = Grammar(GrammarKind.REGEX, "[ -~]{40}")
MIXED = Grammar(GrammarKind.REGEX, "([ -~]{3}then the same words[a-z]{2}){3}")


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("options", [{}, {"top_logprobs": 0}, {"max_new_tokens": 17}])
@pytest.mark.parametrize("grammar", [PRINTABLE, MIXED, PERSON, DIGITS])
def test_drafts_change_no_answer_and_none_outside_its_grammar_is_run(
    make: Make, grammar: Grammar, options: dict[str, int], overlap: bool
):
    """Walked through the grammar first: a draft that it forbids would be a wasted row."""
    plain, spec = make(overlap=overlap), make(overlap=overlap, draft_tokens=5)
    for loop in (plain, spec):
        for seed in range(4):
            start(loop, f"r{seed}", grammar, **{"seed": seed, "max_new_tokens": 60} | options)
        loop.drain()
    assert spec.text == plain.text
    assert all(spec.done[rid].finish == plain.done[rid].finish for rid in plain.done)
    if grammar is PRINTABLE:
        assert spec.counters()["spec_accepted_tokens"] > 0
        assert len(spec.plans) < len(plain.plans)


def arrive(loop: Loop, turn: int, rng: Random) -> str:
    kind = rng.choice(["hex", "json", "plain"])
    prompt = [rng.randrange(20, 24) for _ in range(rng.randint(1, 30))]
    grammar = {"json": PERSON, "hex": HEX, "plain": None}[kind]
    name = f"{kind}-{turn}"
    loop.add(name, prompt, grammar=grammar, stop_token_ids=(EOS,), max_new_tokens=30)
    return name


def settle(loop: Loop, executor: HeldExecutor) -> None:
    for _ in range(3000):
        executor.work()
        if not loop.scheduler.has_work and not loop.scheduler.in_flight:
            return
        loop.step()
    raise AssertionError("still running")


def check_text(name: str, found: str) -> None:
    if name.startswith("json"):
        assert json.loads(found).keys() == {"name", "ok"}
    elif name.startswith("hex"):
        assert re.fullmatch("[0-9a-f]{25}", found)
