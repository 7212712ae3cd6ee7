"""A module tree on a device: every tensor, each once, and tables that stay on the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.srt.layers.engram import EngramTable
from treadle.srt.models import moved as module
from treadle.srt.models.moved import moved

META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Part:
    weight: Tensor
    name: str
    parts: tuple[Part | EngramTable | None, ...] = ()


def test_the_cpu_has_the_tree_itself():
    tree = Part(torch.ones(2), "a")
    assert moved(tree, torch.device("cpu")) is tree


def test_every_tensor_is_moved_and_none_twice():
    shared = torch.ones(3)
    tree = Part(shared, "a", (Part(torch.ones(2), "b", (None,)), Part(shared, "c")))
    there = moved(tree, META)
    inner, last = there.parts
    assert isinstance(inner, Part) and isinstance(last, Part)
    assert {x.device.type for x in (there.weight, inner.weight, last.weight)} == {"meta"}
    assert there.weight is last.weight and inner.parts == (None,)
    assert (there.name, inner.name, last.name) == ("a", "b", "c")
    assert tree.weight.device.type == "cpu"


def test_a_table_stays_on_the_host(monkeypatch):
    monkeypatch.setattr(module, "_pinned", lambda table: table)
    table = EngramTable(torch.zeros(4, 32), torch.zeros(4, 1))
    there = moved(Part(torch.ones(1), "a", (table,)), META).parts[0]
    assert isinstance(there, EngramTable) and there.codes is table.codes
