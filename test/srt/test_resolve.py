"""Automatic values and ranges of a ServerConfig."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.srt.cache.layout import KVLayout
from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import ServerConfig
from treadle.srt.device import CPU_BUDGET_BYTES
from treadle.srt.errors import ConfigError
from treadle.srt.host import HostFacts
from treadle.srt.model_config import LayerConfig, LayerKind, ModelConfig, Rope
from treadle.srt.resolve import resolve

GIB = 1 << 30
HOST = HostFacts(available_bytes=16 * GIB, num_cores=6, seed=99)
W, G = LayerKind.WINDOW, LayerKind.GLOBAL
GEMMA_KINDS = tuple(G if i % 6 == 5 else W for i in range(18))


def model(kinds: tuple[LayerKind, ...] = GEMMA_KINDS, window: int = 512) -> ModelConfig:
    """Gemma 3 270M in structure; without window layers a Llama of the same sizes."""
    has_window = W in kinds
    return ModelConfig(
        architecture="Gemma3ForCausalLM" if has_window else "LlamaForCausalLM",
        model_type="gemma3_text" if has_window else "llama",
        vocab_size=1000,
        hidden_size=640,
        intermediate_size=2048,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        context_len=32768,
        rms_norm_eps=1e-6,
        activation="silu",
        attention_scale=1.0,
        embed_scale=1.0,
        qkv_bias=False,
        o_bias=False,
        qk_norm=False,
        norm_plus_one=False,
        sandwich_norm=False,
        tie_embeddings=True,
        window=window if has_window else 0,
        layers=tuple(LayerConfig(kind, Rope(1e4)) for kind in kinds),
        eos_ids=(),
        is_quantized=has_window,
        replay_slope=32,
    )


GEMMA, LLAMA = model(), model((G,) * 4)


def config(**changes: dict[str, object]) -> ServerConfig:
    base = dataclasses.asdict(ServerConfig())
    base["model"]["path"] = "m"
    sections = {}
    for field in dataclasses.fields(ServerConfig):
        kind = type(getattr(ServerConfig(), field.name))
        sections[field.name] = kind(**base[field.name] | changes.get(field.name, {}))
    return ServerConfig(**sections)


@pytest.mark.parametrize("facts", [GEMMA, LLAMA], ids=["gemma", "llama"])
def test_nothing_is_automatic_afterwards_and_resolving_again_changes_nothing(facts: ModelConfig):
    got = resolve(config(), facts, HOST)
    unlimited = {"max_total_tokens", "max_queued", "queue_timeout_s", "request_timeout_s"}
    optional = unlimited | {"load_format"}  # the file decides
    for section in dataclasses.asdict(got).values():
        left = {k for k, v in section.items() if v in (-1, -1.0, "auto")}
        assert left <= optional
    assert resolve(got, facts, HOST) == got


def test_defaults_on_a_cpu():
    got = resolve(config(), GEMMA, HOST)
    assert got.parallel.device == "cpu"
    assert got.parallel.num_threads == 6
    assert got.sched.seed == 99
    assert got.sched.max_running == 16
    assert (got.model.dtype, got.cache.kv_dtype) == ("float32", "float32")
    assert got.model.context_len == 32768
    assert got.model.served_name == got.model.tokenizer_path == "m"
    assert got.cache.adopt_min_saving == got.cache.page_size
    assert got.net.log_level_http == "info"


def test_values_that_were_given_stay():
    asked = config(
        model={"context_len": 100, "dtype": "bfloat16", "served_name": "x"},
        cache={"kv_dtype": "bfloat16", "replay_slope": 0, "adopt_min_saving": 5},
        sched={"max_running": 3, "chunk_tokens": 2000, "seed": 4, "draft_tokens": 0},
        parallel={"num_threads": 1, "device": "cpu", "attention_backend": "torch_native"},
    )
    got = resolve(asked, GEMMA, HOST)
    assert got.sched == asked.sched
    assert (got.model.context_len, got.model.dtype, got.model.served_name) == (100, "bfloat16", "x")
    assert got.cache.replay_slope == 0 and got.cache.adopt_min_saving == 5
    assert got.parallel == replace(asked.parallel, graph_batch=0)


@pytest.mark.parametrize(("facts", "expected"), [(GEMMA, "q8_0"), (LLAMA, "none")])
def test_quantised_files_stay_quantised_in_memory(facts: ModelConfig, expected: str):
    assert resolve(config(), facts, HOST).model.quantization == expected
    asked = config(model={"quantization": "none"})
    assert resolve(asked, facts, HOST).model.quantization == "none"


def test_gemma_replays_a_staircase_of_32_and_a_step_holds_it():
    got = resolve(config(), GEMMA, HOST)
    assert got.cache.replay_slope == 32
    longest = 512 + 32 * 14
    assert got.sched.chunk_tokens >= longest + got.cache.page_size + got.sched.max_running - 1
    assert got.sched.chunk_tokens % got.cache.page_size == 0


def test_automatic_chunk_leaves_a_row_for_every_other_request():
    asked = config(sched={"max_running": 200}, cache={"memory_bytes": 8 * GIB})
    assert resolve(asked, GEMMA, HOST).sched.chunk_tokens >= 960 + 16 + 199


def test_slope_is_within_a_small_window_and_zero_without_windows():
    assert resolve(config(), model(window=8), HOST).cache.replay_slope == 7
    assert resolve(config(), LLAMA, HOST).cache.replay_slope == 0


def test_automatic_chunk_grows_with_the_replay_and_not_for_exact_mode():
    asked = config(cache={"replay_slope": 100})
    assert resolve(asked, GEMMA, HOST).sched.chunk_tokens >= 512 + 100 * 14 + 16
    exact = config(cache={"replay_mode": "exact"})
    assert resolve(exact, GEMMA, HOST).sched.chunk_tokens == 1024


def test_grid_is_the_least_legal_one_and_ignored_without_windows():
    assert resolve(config(), GEMMA, HOST).cache.canonical_grid == 4096
    assert resolve(config(), LLAMA, HOST).cache.canonical_grid == 16
    asked = config(cache={"canonical_grid": 8192, "replay_mode": "canonical"})
    assert resolve(asked, GEMMA, HOST).cache.canonical_grid == 8192


def test_chunk_that_cannot_hold_a_replay_is_refused_unless_there_are_no_hits():
    small: dict[str, object] = {"chunk_tokens": 960}
    with pytest.raises(ConfigError, match="--chunked-prefill-size 960: must be at least 976"):
        resolve(config(sched=small), GEMMA, HOST)
    without = config(sched=small, cache={"prefix_cache": False})
    assert resolve(without, GEMMA, HOST).sched.chunk_tokens == 960


@pytest.mark.parametrize(
    ("cache", "available", "expected"),
    [
        ({}, 16 * GIB, CPU_BUDGET_BYTES),
        ({}, 4 * GIB, GIB),
        ({"memory_fraction": 0.5}, 4 * GIB, 2 * GIB),
        ({"memory_bytes": 3 * GIB}, 4 * GIB, 3 * GIB),
        ({"memory_bytes": 3 * GIB, "memory_fraction": 0.5}, 4 * GIB, 3 * GIB),
    ],
)
def test_memory_budget(cache: dict[str, object], available: int, expected: int):
    host = replace(HOST, available_bytes=available)
    assert resolve(config(cache=cache), GEMMA, host).cache.memory_bytes == expected


def test_replicas_of_a_host_share_its_cores_and_memory():
    half: dict[str, object] = {"memory_fraction": 0.5}
    alone = resolve(config(cache=half), GEMMA, HOST)
    one_of_four = resolve(config(cache=half, parallel={"dp_size": 4}), GEMMA, HOST)
    assert one_of_four.cache.memory_bytes == alone.cache.memory_bytes // 4
    assert (alone.parallel.num_threads, one_of_four.parallel.num_threads) == (6, 1)


def test_windows_take_at_most_half_of_a_small_budget():
    slot = 15 * 512 * 2 * 256 * 4
    off = config(cache={"memory_bytes": 10 * slot, "warm_windows": 0})
    got = resolve(off, GEMMA, HOST)
    assert (got.sched.max_running, got.cache.warm_windows) == (4, 0)
    slot = slot // 512 * (512 + 2 * 16)
    got = resolve(config(cache={"memory_bytes": 10 * slot}), GEMMA, HOST)
    assert (got.sched.max_running, got.cache.warm_windows) == (3, 1)
    got = resolve(config(cache={"memory_bytes": 44 * slot}), GEMMA, HOST)
    assert (got.sched.max_running, got.cache.warm_windows) == (16, 5)


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("cache", {"page_size": 15}, "--page-size 15: must be even"),
        ("cache", {"page_size": 0}, "--page-size 0: must be from 2"),
        ("cache", {"page_size": -16}, "--page-size -16: must be from 2"),
        ("cache", {"canonical_grid": 2048}, "--swa-canonical-grid 2048: must be at least 4096"),
        ("cache", {"canonical_grid": 4100}, "--swa-canonical-grid 4100: must be a multiple of"),
        ("cache", {"replay_depth": 0}, "--swa-replay-depth 0: must be from 1"),
        ("cache", {"replay_slope": 512}, "--swa-replay-slope 512: must be from 0 to 511"),
        ("cache", {"memory_fraction": 1.5}, "--mem-fraction-static 1.5: must be from 0.001 to 1"),
        ("cache", {"max_total_tokens": 3}, "--max-total-tokens 3: must be at least 16"),
        ("cache", {"memory_bytes": 1 << 20}, "--kv-cache-memory 1048576 bytes do not hold"),
        ("cache", {"max_total_tokens": 500}, "--max-total-tokens 500"),
        ("model", {"context_len": 0}, "--context-length 0: must be from 1 to 32768"),
        ("model", {"context_len": 10_000_000}, "--context-length 10000000: must be from 1"),
        ("model", {"context_len": 40000}, "--json-model-override-args can raise that"),
        ("sched", {"max_running": 0}, "--max-running-requests 0: must be from 1"),
        ("sched", {"max_queued": 0}, "--max-queued-requests 0: must be at least 1"),
        ("sched", {"chunk_tokens": 0}, "--chunked-prefill-size 0: must be at least 1"),
        ("sched", {"chunk_tokens": 30}, "--chunked-prefill-size 30: must be at least 31, a row"),
        ("sched", {"watchdog_s": 0.0}, "--watchdog-timeout 0: must be at least 1"),
        ("sched", {"decode_log_interval": 0}, "--decode-log-interval 0: must be at least 1"),
        (
            "sched",
            {"conservativeness": 0.0},
            "--schedule-conservativeness 0: must be at least 0.01",
        ),
        ("sched", {"seed": -2}, "--random-seed -2: must be at least 0"),
        ("parallel", {"num_threads": 0}, "--num-threads 0: must be from 1"),
        ("parallel", {"tp_size": 2}, "--tp-size 2: this version has one worker"),
        ("parallel", {"device": "cuda"}, "--device cuda: the driver shows no NVIDIA device"),
        ("net", {"port": 65536}, "--port 65536: must be from 0 to 65535"),
        ("net", {"keep_alive_s": 0}, "--timeout-keep-alive 0: must be at least 1"),
        ("net", {"stream_interval": 0}, "--stream-interval 0: must be at least 1"),
        ("net", {"max_body_bytes": 1}, "--max-body-bytes 1: must be at least 1024"),
    ],
)
def test_error_names_flag_value_and_limit(section: str, values: dict[str, object], words: str):
    with pytest.raises(ConfigError) as caught:
        resolve(config(**{section: values}), GEMMA, HOST)
    assert words in caught.value.message


@pytest.mark.parametrize("prefix", ["", "my_", "my:"])
def test_metrics_prefix_is_part_of_a_name(prefix: str):
    assert resolve(config(api={"metrics_prefix": prefix}), GEMMA, HOST).api.metrics_prefix == prefix
    with pytest.raises(ConfigError, match="--metrics-prefix my-x:"):
        resolve(config(api={"metrics_prefix": "my-x"}), GEMMA, HOST)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"net": {"root_path": "llm"}}, "--fastapi-root-path llm: must begin with /"),
        ({"net": {"ssl_keyfile": "/none"}}, "--ssl-keyfile /none: cannot be read"),
        ({"net": {"ssl_certfile": __file__}}, "need each other"),
        ({"api": {"template_kwargs": "[1]"}}, "--default-chat-template-kwargs .* JSON object"),
        ({"api": {"template_kwargs": "{"}}, "--default-chat-template-kwargs .* JSON object"),
        ({"net": {"log_requests_level": 4}}, "--log-requests-level 4: must be from 0 to 3"),
    ],
)
def test_texts_that_cannot_be_used_are_refused(changes: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        resolve(config(**changes), GEMMA, HOST)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"trim_rule": "prompt"}, "--enable-decoder-swa-bounded-replay"),
        ({"trim_clips": False}, "--no-swa-trim-clip"),
    ],
)
def test_trimming_is_refused_for_models_without_decoder_layers(
    changes: dict[str, object], flag: str
):
    with pytest.raises(ConfigError, match=f"{flag}: Gemma3ForCausalLM has no decoder layers"):
        resolve(config(cache=changes), GEMMA, HOST)


def speculating(facts: ModelConfig, **sched: object) -> ServerConfig:
    return resolve(config(sched={"speculation": "dspark"} | sched), facts, HOST)


def test_drafts_are_a_block_of_the_draft_head_unless_asked_otherwise():
    facts = load_model_config(CHECKPOINTS / "v41-nano")
    assert speculating(facts).sched.draft_tokens == 5
    assert speculating(facts, draft_tokens=2).sched.draft_tokens == 2
    assert not speculating(facts).sched.overlap
    assert resolve(config(), facts, HOST).sched.draft_tokens == 0


def test_drafts_that_cannot_be_are_refused_by_flag():
    facts = load_model_config(CHECKPOINTS / "v41-nano")
    with pytest.raises(ConfigError, match="--speculative-num-draft-tokens 6: must be from 1 to 5"):
        speculating(facts, draft_tokens=6)
    with pytest.raises(ConfigError, match="--speculative-num-draft-tokens 0"):
        speculating(facts, draft_tokens=0)
    with pytest.raises(ConfigError, match="--speculative-algorithm dspark: Gemma3ForCausalLM"):
        speculating(GEMMA)
    with pytest.raises(ConfigError, match="needs --speculative-algorithm"):
        resolve(config(sched={"draft_tokens": 3}), facts, HOST)


def test_a_checkpoint_without_draft_head_is_refused():
    facts = load_model_config(CHECKPOINTS / "v41-nano")
    assert facts.latent is not None
    draft = replace(facts.latent.draft, num_blocks=0)
    bare = replace(facts, latent=replace(facts.latent, draft=draft))
    with pytest.raises(ConfigError, match="has no draft head"):
        speculating(bare)


def test_windows_of_the_draft_head_are_counted_only_when_it_is_served():
    facts = load_model_config(CHECKPOINTS / "v41-nano")
    section = resolve(config(), facts, HOST).cache
    without = KVLayout.from_config(facts, section, 0, 1).slot_bytes
    assert without < KVLayout.from_config(facts, section, 5, 1).slot_bytes
