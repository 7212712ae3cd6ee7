"""KVLayout and plan_capacity: the arithmetic of the design, and refusals that name values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.srt.cache.layout import KVLayout, align_up, plan_capacity
from treadle.srt.cache.row_sizes import RowSizes
from treadle.srt.config import CacheSection
from treadle.srt.errors import ConfigError
from treadle.srt.model_config import LayerConfig, LayerKind, ModelConfig, Rope


@pytest.fixture
def gemma(gemma_kinds):
    rope = Rope(theta=1e6)
    return ModelConfig(
        architecture="Gemma3ForCausalLM",
        model_type="gemma3_text",
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        context_len=32768,
        rms_norm_eps=1e-6,
        activation="gelu_tanh",
        attention_scale=256**-0.5,
        embed_scale=640**0.5,
        qkv_bias=False,
        o_bias=False,
        qk_norm=True,
        norm_plus_one=False,
        sandwich_norm=True,
        tie_embeddings=True,
        window=512,
        layers=tuple(LayerConfig(kind, rope) for kind in gemma_kinds),
        eos_ids=(1,),
        is_quantized=True,
    )


@pytest.fixture
def layout(gemma):
    return KVLayout.from_config(gemma, CacheSection(kv_dtype="bfloat16", warm_windows=0), 0, 1)


def test_gemma_bytes_are_those_of_the_design(layout):
    """Section 5: 1,024 B a row and layer, 3,072 B a token, 7,864,320 B a window, 96 MiB at 32k."""
    assert layout.rows.ring_row_bytes == 1024
    assert layout.token_bytes == 3072
    assert layout.slot_bytes == 7_864_320
    assert layout.token_bytes * 32768 == 96 << 20
    assert layout.slot_bytes // layout.token_bytes == 2560


def test_float32_doubles_every_size(gemma, layout):
    wide = KVLayout.from_config(gemma, CacheSection(kv_dtype="float32", warm_windows=0), 0, 1)
    assert wide.page_bytes == 2 * layout.page_bytes
    assert wide.slot_bytes == 2 * layout.slot_bytes


@pytest.mark.parametrize(("drafts", "align", "rows"), [(0, 1, 512), (1, 1, 513), (5, 64, 576)])
def test_ring_holds_window_and_drafts(gemma, drafts, align, rows):
    """S3: C = align_up(W + d, alignment)."""
    section = CacheSection(kv_dtype="bfloat16", warm_windows=0)
    assert KVLayout.from_config(gemma, section, drafts, align).ring_rows == rows
    assert align_up(512 + drafts, align) == rows


def test_half_gibibyte_splits_as_in_the_design(layout):
    """Section 5: 16+1 slots take 127.5 MiB, which leaves 131,072 tokens and a little more."""
    capacity = plan_capacity(layout, 512 << 20, 16, -1, 32768, 2048)
    assert capacity.num_slots == 17
    assert capacity.num_pages == ((512 << 20) - 17 * 7_864_320) // (16 * 3072)
    assert 131_072 <= (capacity.num_pages - 1) * 16 < 131_072 + 256


def test_cap_limits_tokens_not_counting_the_sink(layout):
    capacity = plan_capacity(layout, 512 << 20, 4, 4096, 32768, 1024)
    assert (capacity.num_pages - 1) * 16 == 4096


def test_model_without_windows_spends_all_on_pages():
    layout = KVLayout(16, RowSizes(2 * 30 * 1536, 1536, 0), 0, 0)
    capacity = plan_capacity(layout, 64 << 20, 256, -1, 8192, 512)
    assert capacity.num_pages == (64 << 20) // (16 * 30 * 1536)


def test_model_without_global_layers_has_pages_for_every_row():
    capacity = plan_capacity(KVLayout(16, RowSizes(0, 64, 2), 8, 8), 1 << 20, 3, -1, 100, 32)
    assert capacity.num_pages == 3 * 7 + 1


def test_budget_below_the_windows_is_refused_with_its_values(layout):
    with pytest.raises(
        ConfigError,
        match=r"--kv-cache-memory 104857600 bytes.*--max-running-requests 16.*133693440",
    ):
        plan_capacity(layout, 100 << 20, 16, -1, 32768, 2048)


@pytest.mark.parametrize("cap", [2048, 2048 + 15])
def test_pages_below_a_chunk_and_a_page_are_refused(layout, cap):
    """Section 5: refuse when pages * P < chunk + P."""
    with pytest.raises(ConfigError, match=r"--chunked-prefill-size 2048.*--page-size 16"):
        plan_capacity(layout, 512 << 20, 4, cap, 32768, 2048)
    assert plan_capacity(layout, 512 << 20, 4, 2048 + 16, 32768, 2048).num_pages == 130


def test_chunk_beyond_the_context_does_not_ask_for_more_pages(layout):
    assert plan_capacity(layout, 512 << 20, 4, 256 + 16, 256, 2048).num_pages == 18


def test_no_slot_is_refused(layout):
    with pytest.raises(ConfigError, match="--max-running-requests 0"):
        plan_capacity(layout, 512 << 20, 0, -1, 32768, 2048)


@pytest.mark.parametrize(
    ("section", "word"),
    [
        (CacheSection(page_size=15, kv_dtype="bfloat16"), "--page-size 15"),
        (CacheSection(page_size=0, kv_dtype="bfloat16"), "--page-size 0"),
        (CacheSection(kv_dtype="auto"), "--kv-cache-dtype auto"),
    ],
)
def test_unusable_section_is_refused(gemma, section, word):
    """B3: an even page keeps compressor pairs whole."""
    with pytest.raises(ConfigError, match=word):
        KVLayout.from_config(gemma, section, 0, 1)


def test_layer_kinds_decide_what_is_paged(gemma, layout):
    assert layout.token_bytes == 3 * layout.rows.ring_row_bytes
    assert layout.rows.num_rings == 15
    assert all(gemma.layers[i].kind is LayerKind.GLOBAL for i in (5, 11, 17))


def test_kept_windows_cost_two_pages_of_rows_and_their_slots(gemma):
    """Section 2: a floored boundary keeps its window with W + P - 1 rows; a fork may come later."""
    section = CacheSection(kv_dtype="bfloat16", warm_windows=16)
    layout = KVLayout.from_config(gemma, section, 0, 1)
    assert (layout.ring_rows, layout.num_warm) == (512 + 2 * 16, 16)
    assert layout.slot_bytes == 7_864_320 // 512 * 544
    assert plan_capacity(layout, 512 << 20, 16, -1, 32768, 2048).num_slots == 33
    with pytest.raises(ConfigError, match="--max-running-requests 16 and 40 warm"):
        many = KVLayout.from_config(gemma, replace(section, warm_windows=40), 0, 1)
        plan_capacity(many, 400 << 20, 16, -1, 32768, 2048)


def test_models_without_windows_keep_none(gemma):
    plain = replace(gemma, layers=tuple(gemma.layers[5] for _ in range(4)), window=0)
    layout = KVLayout.from_config(plain, CacheSection(kv_dtype="bfloat16", warm_windows=9), 0, 1)
    assert (layout.ring_rows, layout.num_warm, layout.slot_bytes) == (0, 0, 0)
