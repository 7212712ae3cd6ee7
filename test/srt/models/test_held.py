"""Bytes of a module tree: each tensor once, tables of the mapped checkpoint not at all."""

from __future__ import annotations

import math

import torch

from test.v41 import CHECKPOINTS, builder_of, loaded
from treadle.kernels import ops
from treadle.srt.checkpoint import load_model_config
from treadle.srt.layers.engram import EngramTable
from treadle.srt.layers.linear import Linear
from treadle.srt.loader.meta import MetaWeights
from treadle.srt.models.held import held_bytes


def test_a_shared_tensor_counts_once():
    weight = torch.zeros(4, 8)
    assert held_bytes(weight, (Linear(weight), Linear(weight, torch.zeros(4)))) == 128 + 16


def test_packed_matrices_count_as_they_are_stored():
    packed = ops.pack_q8(torch.randn(16, 64))
    assert held_bytes(packed) == packed.data.nbytes + packed.scales.nbytes


def test_a_mapped_table_counts_nothing():
    assert held_bytes(EngramTable(torch.zeros(9), torch.zeros(9))) == 0


def test_a_model_holds_quantised_matrices_packed_and_the_rest_in_fp32():
    config = load_model_config(CHECKPOINTS / "v41-nano")
    weights = MetaWeights.of(config)
    builder = builder_of(config, weights)
    builder.model(CHECKPOINTS / "v41-nano")
    expected = 0
    for name, spec in weights.asked.items():
        if ".engram.embed." in name:
            continue
        if ".experts." in name:
            expected += math.prod(spec.shape)
        elif name.endswith(".scale"):
            expected += 32 * math.prod(spec.shape)  # one a row, not one a tile
        elif f"{name.removesuffix('weight')}scale" in weights.asked:
            expected += math.prod(spec.shape)
        else:
            # q and k weights of an Engram are kept as their product
            expected += 4 * math.prod(spec.shape) * (not name.endswith("engram.k_weight"))
    found = held_bytes(loaded("v41-nano", is_exact=False).model)
    small = 4 * 512 + 60 * 64  # token maps, primes, frequencies
    assert expected < found < expected + 8 * small
