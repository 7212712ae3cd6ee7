"""RunningSet: pages for rows, publishing, and page-table changes between steps."""

from __future__ import annotations

from test.fake_model import FakeModel

from .conftest import MakeLoop

MODEL = FakeModel(stop_rate=0.0)


def test_a_page_is_taken_when_the_last_is_full(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, overlap=False)
    loop.add("a", range(6), max_new_tokens=12)
    loop.drain()
    grown = [[(u.first, len(u.pages)) for u in plan.pages] for plan in loop.plans]
    assert grown == [[(0, 2)], [], [], [(2, 1)], [], [], [], [(3, 1)], [], [], [], [(4, 1)]]


def test_chunks_are_published_as_they_are_answered(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=12, overlap=False)  # T37, T13
    loop.add("a", range(30), max_new_tokens=12)
    sizes = []
    for _ in range(6):
        loop.plan()
        sizes.append(len(loop.tree_pages()))
        loop.commit()
    assert sizes == [0, 3, 6, 7, 7, 7]  # a planned chunk is not published, nor is a started page
    loop.drain()
    assert len(loop.tree_pages()) == (30 + 11) // 4


def test_a_request_follows_the_pages_of_the_tree(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, overlap=False)  # T14
    loop.add("a", range(20), max_new_tokens=8)
    loop.add("b", range(20), max_new_tokens=8)
    loop.step()
    loop.plan()
    assert loop.worker._bound[1].table[:5] == loop.worker._bound[2].table[:5]


def test_changes_for_a_slot_that_was_given_back_are_forgotten(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=2, overlap=False)
    loop.add("a", range(20), max_new_tokens=8)
    loop.add("b", range(20), max_new_tokens=8)
    loop.step()  # the second is told to follow the first with the next plan
    loop.scheduler.abort_all("user", 0.0)
    loop.add("c", range(50, 60), max_new_tokens=2)
    loop.add("d", range(70, 80), max_new_tokens=2)
    loop.plan()
    assert sorted((u.slot, u.first, len(u.pages)) for u in loop.plans[-1].pages) == [
        (1, 0, 3),
        (2, 0, 3),
    ]


def test_exact_requests_are_not_moved_while_they_run(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, mode="exact", overlap=False)  # T16
    loop.add("a", range(20), max_new_tokens=8)
    loop.add("b", range(20), max_new_tokens=8)
    loop.step()
    loop.plan()
    assert all(update.first >= 5 for update in loop.plans[-1].pages)
    assert not loop.tree_pages()
    loop.drain()
    assert loop.tree_pages()
