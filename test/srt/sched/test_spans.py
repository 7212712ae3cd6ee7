"""Which running requests get rows, and in which order."""

from __future__ import annotations

from test.fake_model import FakeModel
from test.grammars import EOS, InlineExecutor, make_store
from test.srt.sched.conftest import MakeLoop
from treadle.srt.token_masks import Grammar, GrammarKind

MODEL = FakeModel(vocab_size=200, stop_rate=0.0)
LETTERS = Grammar(GrammarKind.REGEX, "[a-z]{60}")
FORCED = Grammar(GrammarKind.REGEX, "[a-z]123456789[a-z]{60}")


def test_request_with_a_grammar_decodes_beside_a_prompt_that_takes_the_budget(make_loop: MakeLoop):
    store = make_store(InlineExecutor())
    loop = make_loop(model=MODEL, chunk_tokens=12, num_pages=90, grammars=store)
    loop.add("g", range(20, 25), grammar=LETTERS, stop_token_ids=(EOS,), max_new_tokens=60)
    loop.step()
    loop.add("long", [30 + i % 90 for i in range(200)])
    for _ in range(14):
        loop.step()
    assert len(loop.text["g"]) >= 7  # every other step: never planned ahead
    assert "long" not in loop.text


def test_one_row_goes_before_a_span_of_forced_tokens(make_loop: MakeLoop):
    store = make_store(InlineExecutor())
    loop = make_loop(model=MODEL, chunk_tokens=64, overlap=False, grammars=store)
    for rid, grammar in (("forced", FORCED), ("one", LETTERS)):
        loop.add(rid, range(20, 25), grammar=grammar, stop_token_ids=(EOS,), max_new_tokens=60)
    loop.step()
    loop.step()
    lengths = [end - start for _, start, _, end, _ in loop.spans()]
    assert lengths == [1, 10]  # the sampled letter and nine digits
