"""The operators: the only import surface of this package, one line per operator.

Every name has its reference's signature; shapes, units and `Writes` are in the reference's
docstring.
"""

from __future__ import annotations

from .dispatch import check_names, op
from .reference import (
    activation,
    block_float,
    compressor,
    engram,
    gated_linear,
    gguf_quant,
    hyper,
    indexer,
    latent_pages,
    moe,
    norm,
    packed_linear,
    quant,
)
from .reference import kv_write as kv_write_reference
from .reference import latent_attention as latent_reference
from .reference import linear as linear_reference
from .reference import paged_attention as paged_reference
from .reference import rope as rope_reference
from .reference import (
    rope_pairs as rope_pairs_reference,
)
from .reference import rotated_attention as rotated_reference
from .reference import window_attention as window_reference
from .reference.block_float import RowKind
from .reference.hyper import HyperMatrix
from .reference.latent_pages import Choice, Pages, Rings
from .reference.moe import Experts
from .reference.packed_linear import MatrixKind, PackedMatrix
from .reference.quant import Q8Weight
from .reference.rope import QkNorm, rope_inv_freq, rope_table
from .reference.rope_pairs import yarn_frequencies
from .reference.rotated_attention import PagedKeys, Rotation, WindowKeys

__all__ = [
    "Choice",
    "Experts",
    "HyperMatrix",
    "MatrixKind",
    "PackedMatrix",
    "PagedKeys",
    "Pages",
    "Q8Weight",
    "QkNorm",
    "Rings",
    "Rotation",
    "RowKind",
    "WindowKeys",
    "add_rms_norm",
    "attend_pages",
    "candidate_blocks",
    "choose_entries",
    "clamped_swiglu",
    "concat_q8",
    "decode_rows",
    "dequantize",
    "encode_rows",
    "engram_gate",
    "engram_rows",
    "fp4_matrix",
    "fp8_dequantize",
    "fp8_quantize",
    "fp8_round",
    "fp8_row_quantize",
    "fp8_tiles",
    "gelu_tanh_linear",
    "gelu_tanh_mul",
    "hyper_collapse",
    "hyper_expand",
    "hyper_weights",
    "index_scores",
    "join_packed",
    "keep_rows",
    "kv_write",
    "latent_attention",
    "linear",
    "linear_packed",
    "linear_q8",
    "moe_experts",
    "mxfp4_dequantize",
    "mxfp4_quantize",
    "mxfp4_round",
    "norm_add_rms_norm",
    "norm_rope",
    "nvfp4_dequantize",
    "nvfp4_quantize",
    "pack_nibbles",
    "pack_float32",
    "pack_fp4",
    "pack_fp8",
    "pack_q8",
    "paged_attention",
    "pool_pairs",
    "pool_rows",
    "q8_rows",
    "qk_norm_rope",
    "rms_norm",
    "rope",
    "rope_inv_freq",
    "rope_pairs",
    "rope_table",
    "rotated_paged_attention",
    "rotated_window_attention",
    "route",
    "select_entries",
    "silu_linear",
    "silu_mul",
    "store_rows",
    "table_rows",
    "unpack_matrix",
    "unpack_nibbles",
    "unpack_q8",
    "window_attention",
    "yarn_frequencies",
]

# weights: GGUF blocks, int8 groups
dequantize = op(gguf_quant.dequantize)
pack_q8 = op(quant.pack_q8, cpu="quant.pack_q8")
unpack_q8 = op(quant.unpack_q8)
concat_q8 = op(quant.concat_q8)
q8_rows = op(quant.q8_rows, cpu="quant.q8_rows")

# linear
linear = op(linear_reference.linear, cpu="linear.linear", triton="linear.linear")
linear_q8 = op(linear_reference.linear_q8, cpu="linear.linear_q8")

pack_float32 = op(packed_linear.pack_float32)
pack_fp8 = op(packed_linear.pack_fp8)
pack_fp4 = op(packed_linear.pack_fp4)
join_packed = op(packed_linear.join_packed)
unpack_matrix = op(packed_linear.unpack_matrix)
linear_packed = op(
    packed_linear.linear_packed,
    cpu="packed_linear.linear_packed",
    triton="packed_linear.linear_packed",
)

# norm, rope, activation
rms_norm = op(norm.rms_norm, cpu="norm.rms_norm", triton="norm.rms_norm")
add_rms_norm = op(norm.add_rms_norm, cpu="norm.add_rms_norm", triton="norm.add_rms_norm")
norm_add_rms_norm = op(
    norm.norm_add_rms_norm, cpu="norm.norm_add_rms_norm", triton="norm.norm_add_rms_norm"
)
rope = op(rope_reference.rope, cpu="rope.rope", triton="rope.rope")
norm_rope = op(rope_reference.norm_rope, cpu="rope.norm_rope", triton="rope.norm_rope")
qk_norm_rope = op(rope_reference.qk_norm_rope, cpu="rope.qk_norm_rope", triton="rope.qk_norm_rope")
gelu_tanh_mul = op(
    activation.gelu_tanh_mul, cpu="activation.gelu_tanh_mul", triton="activation.gelu_tanh_mul"
)
silu_mul = op(activation.silu_mul, cpu="activation.silu_mul", triton="activation.silu_mul")
gelu_tanh_linear = op(
    gated_linear.gelu_tanh_linear,
    cpu="gated_linear.gelu_tanh_linear",
    triton="gated_linear.gelu_tanh_linear",
)
silu_linear = op(
    gated_linear.silu_linear, cpu="gated_linear.silu_linear", triton="gated_linear.silu_linear"
)

# attention
kv_write = op(kv_write_reference.kv_write, cpu="kv_write.kv_write", triton="kv_write.kv_write")
paged_attention = op(
    paged_reference.paged_attention,
    cpu="paged_attention.paged_attention",
    triton="paged_attention.paged_attention",
)
window_attention = op(
    window_reference.window_attention,
    cpu="window_attention.window_attention",
    triton="window_attention.window_attention",
)

rotated_paged_attention = op(
    rotated_reference.rotated_paged_attention,
    cpu="rotated_attention.rotated_paged_attention",
    triton="rotated_attention.rotated_paged_attention",
)
rotated_window_attention = op(
    rotated_reference.rotated_window_attention,
    cpu="rotated_attention.rotated_window_attention",
    triton="rotated_attention.rotated_window_attention",
)

# block-scaled small floats
encode_rows = op(
    block_float.encode_rows, cpu="block_float.encode_rows", triton="block_float.encode_rows"
)
decode_rows = op(
    block_float.decode_rows, cpu="block_float.decode_rows", triton="block_float.decode_rows"
)
fp8_quantize = op(block_float.fp8_quantize)
fp8_dequantize = op(
    block_float.fp8_dequantize,
    cpu="block_float.fp8_dequantize",
    triton="block_float.fp8_dequantize",
)
fp8_round = op(block_float.fp8_round, cpu="block_float.fp8_round", triton="block_float.fp8_round")
fp8_row_quantize = op(block_float.fp8_row_quantize)
fp8_tiles = op(block_float.fp8_tiles)
fp4_matrix = op(block_float.fp4_matrix)
mxfp4_quantize = op(block_float.mxfp4_quantize)
mxfp4_dequantize = op(block_float.mxfp4_dequantize)
mxfp4_round = op(
    block_float.mxfp4_round, cpu="block_float.mxfp4_round", triton="block_float.mxfp4_round"
)
nvfp4_quantize = op(block_float.nvfp4_quantize)
nvfp4_dequantize = op(block_float.nvfp4_dequantize)
pack_nibbles = op(block_float.pack_nibbles)
unpack_nibbles = op(block_float.unpack_nibbles)

# hyper-connections, experts, n-gram memory
hyper_weights = op(hyper.hyper_weights, cpu="hyper.hyper_weights", triton="hyper.hyper_weights")
hyper_collapse = op(hyper.hyper_collapse, cpu="hyper.hyper_collapse", triton="hyper.hyper_collapse")
hyper_expand = op(hyper.hyper_expand, cpu="hyper.hyper_expand", triton="hyper.hyper_expand")
route = op(moe.route, cpu="moe.route", triton="moe.route")
clamped_swiglu = op(moe.clamped_swiglu, cpu="moe.clamped_swiglu", triton="moe.clamped_swiglu")
moe_experts = op(moe.moe_experts, cpu="moe.moe_experts", triton="moe.moe_experts")
engram_rows = op(engram.engram_rows, triton="engram.engram_rows")
table_rows = op(engram.table_rows, cpu="engram.table_rows", triton="engram.table_rows")
engram_gate = op(engram.engram_gate, cpu="engram.engram_gate", triton="engram.engram_gate")

# latent attention
rope_pairs = op(
    rope_pairs_reference.rope_pairs, cpu="rope_pairs.rope_pairs", triton="rope_pairs.rope_pairs"
)
pool_pairs = op(compressor.pool_pairs, cpu="compressor.pool_pairs", triton="compressor.pool_pairs")
index_scores = op(indexer.index_scores, cpu="indexer.index_scores", triton="indexer.index_scores")
select_entries = op(
    indexer.select_entries, cpu="indexer.select_entries", triton="indexer.select_entries"
)
candidate_blocks = op(
    indexer.candidate_blocks, cpu="indexer.candidate_blocks", triton="indexer.candidate_blocks"
)
latent_attention = op(
    latent_reference.latent_attention,
    cpu="latent_attention.latent_attention",
    triton="latent_attention.latent_attention",
)

# the same of several requests, in packed pages and rings
attend_pages = op(
    latent_pages.attend_pages, cpu="latent_pages.attend_pages", triton="latent_pages.attend_pages"
)
choose_entries = op(
    latent_pages.choose_entries,
    cpu="latent_pages.choose_entries",
    triton="latent_pages.choose_entries",
)
keep_rows = op(latent_pages.keep_rows, triton="latent_pages.keep_rows")
pool_rows = op(
    latent_pages.pool_rows, cpu="latent_pages.pool_rows", triton="latent_pages.pool_rows"
)
store_rows = op(latent_pages.store_rows, triton="latent_pages.store_rows")

check_names(__all__)
