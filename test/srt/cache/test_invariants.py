"""`CacheManager.check` sees each kind of damage: it would be worthless if it could not fail."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.replay import ReplayShape
from treadle.srt.cache.warm import Window
from treadle.srt.errors import InvariantBroken

WINDOW = Window((), array("i", range(8)).tobytes(), 0, 8, 0, None)
FLAT = ReplayShape("bounded", 0, 1)


def lose_a_page(manager, lease):
    manager.pages.take(1)


def own_a_page_twice(manager, lease):
    lease.pages.append(lease.pages[-1])


def free_a_page_in_use(manager, lease):
    manager.pages.give_back(lease.pages[-1:])


def use_a_free_page(manager, lease):
    lease.pages.append(manager.pages._free[0])


def leave_the_tree(manager, lease):
    lease.pages[0], lease.pages[1] = lease.pages[1], lease.pages[0]


def forget_a_pin(manager, lease):
    manager.tree.pin((), array("i", range(8)), 8, is_resume=False)


def drop_the_pin(manager, lease):
    manager.tree.unpin(lease.pin)


def lose_a_slot(manager, lease):
    manager.windows.slots.take()


def keep_a_slot_that_runs(manager, lease):
    manager.windows.warm.keep(lease.slot, WINDOW, None)


def keep_a_free_slot(manager, lease):
    manager.windows.warm.keep(7, WINDOW, None)


def misbook_pages(manager, lease):
    manager.tree.evictable_pages += 1


def miscount_nodes(manager, lease):
    manager.tree.num_nodes += 1


def pin_a_child_only(manager, lease):
    node = lease.pin.node
    node.pins += 5
    node.parent.pins += 4


def move_a_child(manager, lease):
    node = lease.pin.node
    node.parent.children[b"elsewhere"] = node.parent.children.pop(node.key[:16])


def shorten_a_key(manager, lease):
    lease.pin.node.key = lease.pin.node.key[:-4]


def forget_a_leaf(manager, lease):
    manager.tree._order._order.clear()


def keep_an_empty_root(manager, lease):
    manager.tree._root((("salt", "x"),))


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lose_a_page, "T5"),
        (own_a_page_twice, "T2"),
        (free_a_page_in_use, "T2"),
        (use_a_free_page, "T2"),
        (leave_the_tree, "T15"),
        (forget_a_pin, "T3"),
        (drop_the_pin, "T20"),
        (lose_a_slot, "slots"),
        (keep_a_slot_that_runs, "owners"),
        (keep_a_free_slot, "slot 7 is not taken"),
        (misbook_pages, "T4"),
        (miscount_nodes, "nodes"),
        (pin_a_child_only, "T3"),
        (move_a_child, "T1"),
        (shorten_a_key, "key bytes"),
        (forget_a_leaf, "T21"),
        (keep_an_empty_root, "root"),
    ],
)
def test_damage_is_seen(make_manager, make_ids, damage, word):
    manager = make_manager(windows=1, warm=2)
    done = manager.admit((), make_ids(9, 8), 7, FLAT, 2)
    manager.grow(done.lease, 8)
    manager.publish(done.lease, make_ids(9, 8), 8, None)
    manager.release(done.lease, None)
    tokens = array("i", range(12))
    got = manager.admit((), tokens, 11, FLAT, 3)
    manager.grow(got.lease, 12)
    manager.publish(got.lease, tokens, 8, None)
    manager.check()
    damage(manager, got.lease)
    with pytest.raises(InvariantBroken, match=word):
        manager.check()
