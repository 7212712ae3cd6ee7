"""The module tree of the released model, made without memory: which tensors it takes. And what a
small one keeps of its files while it is loaded.

The list is section 6 of deepseek-v41.md, written out here with the released sizes; the builder
knows nothing of it.
"""

from __future__ import annotations

import gc
import itertools
import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from test.v41 import CHECKPOINTS, builder_of, loaded
from treadle.srt.checkpoint import load_model_config
from treadle.srt.loader import tensor_folder
from treadle.srt.loader.deepseek_v41_tensors import FOR_IMAGES
from treadle.srt.loader.meta import MetaWeights
from treadle.srt.loader.packed import PackedWeights
from treadle.srt.loader.share import Share
from treadle.srt.loader.tensor_folder import INDEX
from treadle.srt.models.deepseek_v41 import DeepseekV41
from treadle.srt.models.dspark import Dspark

ALL_TENSORS, VISION_TENSORS = 96_085, 266
PARAMETERS, VISION_PARAMETERS = 763.21e9, 0.48e9
BACKBONE, TABLES = 551_880_835_184, 196_613_849_600
NANO, TABLE_FILE = CHECKPOINTS / "v41-nano", "tables.safetensors"
VOCAB, KEYS = 129_280, 99_092

Row = tuple[str, tuple[str, ...], tuple[int, ...]]  # name, dtypes that are accepted, shape
BF16, F32, FP8, FP4, E8M0 = ("BF16",), ("F32",), ("F8_E4M3",), ("I8",), ("F8_E8M0",)
LAYER: list[Row] = [
    ("attn_norm.weight", BF16, (5120,)),
    ("ffn_norm.weight", BF16, (5120,)),
    ("hc_attn_fn", F32, (24, 20480)),
    ("hc_ffn_fn", F32, (24, 20480)),
    ("hc_attn_base", F32, (24,)),
    ("hc_ffn_base", F32, (24,)),
    ("hc_attn_scale", F32, (3,)),
    ("hc_ffn_scale", F32, (3,)),
    ("attn.wq_a.weight", FP8, (1280, 5120)),
    ("attn.wq_a.scale", E8M0, (40, 160)),
    ("attn.q_norm.weight", BF16, (1280,)),
    ("attn.wq_b.weight", FP8, (32768, 1280)),
    ("attn.wq_b.scale", E8M0, (1024, 40)),
    ("attn.wkv.weight", FP8, (512, 5120)),
    ("attn.wkv.scale", E8M0, (16, 160)),
    ("attn.kv_norm.weight", BF16, (512,)),
    ("attn.attn_sink", F32, (64,)),
    ("attn.wo_a.weight", FP8, (8192, 4096)),
    ("attn.wo_a.scale", E8M0, (256, 128)),
    ("attn.wo_b.weight", FP8, (5120, 8192)),
    ("attn.wo_b.scale", E8M0, (160, 256)),
    ("ffn.shared_experts.w1.weight", FP8, (2304, 5120)),
    ("ffn.shared_experts.w1.scale", E8M0, (72, 160)),
    ("ffn.shared_experts.w3.weight", FP8, (2304, 5120)),
    ("ffn.shared_experts.w3.scale", E8M0, (72, 160)),
    ("ffn.shared_experts.w2.weight", FP8, (5120, 2304)),
    ("ffn.shared_experts.w2.scale", E8M0, (160, 72)),
]
EXPERT: list[Row] = [
    ("w1.weight", FP4, (2304, 2560)),
    ("w1.scale", E8M0, (2304, 160)),
    ("w3.weight", FP4, (2304, 2560)),
    ("w3.scale", E8M0, (2304, 160)),
    ("w2.weight", FP4, (5120, 1152)),
    ("w2.scale", E8M0, (5120, 72)),
]
INDEX_SOURCE: list[Row] = [
    ("attn.indexer.wq_b.weight", FP8, (4096, 1280)),
    ("attn.indexer.wq_b.scale", E8M0, (128, 40)),
    ("attn.indexer.weights_proj.weight", BF16, (32, 5120)),
]
KV_SOURCE: list[Row] = [
    ("attn.compressor.wkv.weight", BF16, (512, 5120)),
    ("attn.compressor.norm.weight", BF16, (512,)),
    ("attn.indexer.wk.weight", BF16, (128, 512)),
    ("attn.indexer.k_norm.weight", BF16, (128,)),
]
GATE: Row = ("attn.compressor.wgate.weight", BF16, (512, 5120))
ENGRAM: list[Row] = [
    ("engram.wkv.weight", FP8, (25600, 6144)),
    ("engram.wkv.scale", E8M0, (800, 192)),
    ("engram.q_weight", BF16, (4, 5120)),
    ("engram.k_weight", BF16, (4, 5120)),
]
TOP: list[Row] = [
    ("embed.weight", BF16, (129280, 5120)),
    ("head.weight", BF16, (129280, 5120)),
    ("norm.weight", BF16, (5120,)),
    ("mtp.0.main_proj.weight", FP8, (5120, 15360)),
    ("mtp.0.main_proj.scale", E8M0, (160, 480)),
    ("mtp.0.main_norm.weight", BF16, (5120,)),
    ("mtp.2.norm.weight", BF16, (5120,)),
    ("mtp.2.markov_head.embed.weight", BF16, (129280, 256)),
    ("mtp.2.markov_head.head.weight", BF16, (129280, 256)),
    ("mtp.2.confidence_head.proj.weight", BF16, (1, 5376)),
]


def section_6() -> Iterator[Row]:
    yield from TOP
    for layer in range(40):
        yield from block(f"layers.{layer}.", 384)
    for draft in range(3):
        yield from block(f"mtp.{draft}.", 128)
    for layer in (2, 8, 14, 20):
        yield from under(f"layers.{layer}.", KV_SOURCE)
    for layer in (2, 8, 14):
        yield from under(f"layers.{layer}.", [GATE])
    for layer in (2, 8, 14, 20, 24, 28, 32, 36):
        yield from under(f"layers.{layer}.", INDEX_SOURCE)
    for layer, rows in ((1, 384_006_168), (14, 384_016_682)):
        yield from under(f"layers.{layer}.", ENGRAM)
        yield f"layers.{layer}.engram.embed.weight", FP8, (rows, 256)
        yield f"layers.{layer}.engram.embed.scale", E8M0, (rows, 8)


def block(prefix: str, experts: int) -> Iterator[Row]:
    yield from under(prefix, LAYER)
    yield f"{prefix}ffn.gate.weight", BF16, (experts, 5120)
    yield f"{prefix}ffn.gate.bias", F32, (experts,)
    yield f"{prefix}ffn.gate.bias_vl", F32, (experts,)
    for expert in range(experts):
        yield from under(f"{prefix}ffn.experts.{expert}.", EXPERT)


def under(prefix: str, rows: list[Row]) -> Iterator[Row]:
    return ((prefix + name, dtypes, shape) for name, dtypes, shape in rows)


@dataclass(frozen=True, slots=True)
class Released:
    weights: MetaWeights
    model: DeepseekV41
    draft: Dspark


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """`Builder` over the released configuration, with a tokenizer of as many ids and keys."""
    folder = tmp_path_factory.mktemp("released")
    shutil.copy(CHECKPOINTS / "deepseek_v41_flash.json", folder / "config.json")
    words = [f"w{i}" for i in range(KEYS)] + [f"W{i}" for i in range(VOCAB - KEYS)]
    vocab = {word: index for index, word in enumerate(words)}
    Tokenizer(WordLevel(vocab, unk_token="w0")).save(str(folder / "tokenizer.json"))
    config = load_model_config(folder)
    weights = MetaWeights.of(config)
    builder = builder_of(config, weights)
    model = builder.model(folder)
    draft = builder.draft(model)
    assert draft is not None
    return Released(weights, model, draft)


def test_the_model_takes_the_tensors_of_section_6_in_their_shapes(released):
    expected = {name: (dtypes, shape) for name, dtypes, shape in section_6()}
    assert len(expected) == ALL_TENSORS - VISION_TENSORS
    # For rows of an image only: the one tensor of a layer that text has no use for.
    images = {name for name in expected if name.endswith(FOR_IMAGES)}
    assert len(images) == 40 + 3
    taken = released.weights.asked
    assert set(taken) == set(expected) - images
    wrong = [
        name
        for name, spec in taken.items()
        if spec.shape != expected[name][1] or not set(expected[name][0]) <= set(spec.dtypes)
    ]
    assert not wrong


def parameters(names: Iterable[Row]) -> int:
    """Values, of which packed FP4 holds two in a byte. Scales are not parameters."""
    return sum(
        math.prod(shape) * (2 if dtypes == FP4 else 1)
        for _, dtypes, shape in names
        if dtypes != E8M0
    )


def test_the_model_has_as_many_parameters_as_the_report_says(released):
    taken = released.weights.asked
    rows = [row for row in section_6() if row[0] in taken or row[0].endswith(FOR_IMAGES)]
    assert abs(parameters(rows) - (PARAMETERS - VISION_PARAMETERS)) < 0.02e9
    tables = [row for row in rows if ".engram.embed." in row[0]]
    assert parameters(tables) == TABLES
    draft = [row for row in rows if row[0].startswith("mtp.")]
    assert parameters(rows) - parameters(tables) - parameters(draft) == BACKBONE


def test_modules_have_the_shapes_of_the_released_model(released):
    model, draft = released.model, released.draft
    assert [x.engram is not None for x in model.layers] == [i in (1, 14) for i in range(40)]
    first = model.layers[2]
    experts = first.moe.experts
    assert sizes(first.attention.wq_a_kv.weight) == (1280 + 512, 5120)
    assert sizes(first.attention.wo_a) == (8 * 1024, 4096)
    assert sizes(experts.gate_up) == (384 * 2 * 2304, 5120)
    assert experts.gate_up.scales.shape == (384 * 2 * 2304 // 16, 160, 16)
    assert sizes(experts.down) == (384 * 5120, 2304)
    assert experts.count == 384
    assert first.attention.indexer is not None and first.attention.compressor is not None
    assert draft.blocks[0].moe.experts.count == 128
    assert sizes(draft.main.weight) == (5120, 3 * 5120)
    assert experts.gate_up.data.device == torch.device("meta")


def sizes(matrix) -> tuple[int, int]:
    return matrix.out_features, matrix.in_features


def test_hash_constants_of_the_model_are_those_of_appendix_a(released):
    engram = released.model.layers[14].engram
    assert engram.hash.multipliers.tolist() == [
        67716810739261,
        51510806800915,
        30921347202721,
        82619226485591,
    ]
    assert int(engram.hash.primes.sum()) == 384_016_682 == len(engram.table.codes)
    assert int(engram.hash.token_map.max()) == KEYS - 1


def taken_by(rank: int, size: int) -> set[str]:
    config = load_model_config(NANO)
    weights = MetaWeights.of(config)
    builder = builder_of(config, weights, share=Share(rank, size))
    builder.draft(builder.model(NANO))
    return set(weights.asked)


def test_a_rank_takes_no_tensor_of_the_experts_of_another():
    whole, ranks = taken_by(0, 1), [taken_by(rank, 4) for rank in range(4)]
    assert set.union(*ranks) == whole
    for one, other in itertools.combinations(ranks, 2):
        assert one & other == {name for name in whole if ".experts." not in name}
    assert "layers.0.ffn.experts.1.w1.weight" in ranks[0]
    assert "layers.0.ffn.experts.2.w1.weight" in ranks[1]


def in_shards(folder: Path, count: int) -> Path:
    """v41-nano in `count` files, tables in one of their own, as the released checkpoint has it."""
    tensors = load_file(NANO / "model.safetensors")
    files: dict[str, dict[str, torch.Tensor]] = {f"{i}.safetensors": {} for i in range(count)}
    others = [name for name in tensors if ".engram.embed." not in name]
    for index, name in enumerate(others):
        files[f"{index * count // len(others)}.safetensors"][name] = tensors[name]
    files[TABLE_FILE] = {name: x for name, x in tensors.items() if name not in set(others)}
    for file_name, held in files.items():
        save_file(held, folder / file_name)
    weight_map = {name: file_name for file_name, held in files.items() for name in held}
    (folder / INDEX).write_bytes(orjson.dumps({"weight_map": weight_map}))
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(NANO / name, folder)
    return folder


def mapped(folder: Path) -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(x.split()[-1]).name for x in lines if str(folder) in x}


def test_loading_maps_one_shard_at_a_time_and_keeps_the_tables_only(tmp_path, monkeypatch):
    folder = in_shards(tmp_path, 24)
    config = load_model_config(folder)
    open_file, seen = tensor_folder.open_file, []

    def watched(path: Path):
        file = open_file(path)
        seen.append(mapped(folder) - {TABLE_FILE})
        return file

    weights = PackedWeights.open(folder, config)
    monkeypatch.setattr(tensor_folder, "open_file", watched)
    builder = builder_of(config, weights)
    model = builder.model(folder)
    draft = builder.draft(model)
    assert len(set.union(*seen)) == 24 and max(map(len, seen)) == 1
    del builder, weights
    gc.collect()
    assert mapped(folder) == {TABLE_FILE}
    assert model is not None and draft is not None
    whole = loaded("v41-nano", is_exact=False)
    down, expected = (x.layers[3].moe.experts.down for x in (model, whole.model))
    assert torch.equal(down.data, expected.data)
    assert torch.equal(draft.main.weight.data, whole.draft.main.weight.data)
