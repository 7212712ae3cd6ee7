"""The operators: the only import surface of this package, one line per operator.

Every name has its reference's signature; shapes, units and `Writes` are in the reference's
docstring.
"""

from __future__ import annotations

from .dispatch import op
from .reference import activation, gguf_quant, norm, quant
from .reference import kv_write as kv_write_reference
from .reference import linear as linear_reference
from .reference import paged_attention as paged_reference
from .reference import rope as rope_reference
from .reference import window_attention as window_reference
from .reference.quant import Q8Weight
from .reference.rope import QkNorm, rope_inv_freq, rope_table

__all__ = [
    "Q8Weight",
    "QkNorm",
    "add_rms_norm",
    "concat_q8",
    "dequantize",
    "gelu_tanh_mul",
    "kv_write",
    "linear",
    "linear_q8",
    "norm_add_rms_norm",
    "norm_rope",
    "pack_q8",
    "paged_attention",
    "q8_rows",
    "qk_norm_rope",
    "rms_norm",
    "rope",
    "rope_inv_freq",
    "rope_table",
    "silu_mul",
    "unpack_q8",
    "window_attention",
]

# weights: GGUF blocks, int8 groups
dequantize = op(gguf_quant.dequantize)
pack_q8 = op(quant.pack_q8, cpu="quant.pack_q8")
unpack_q8 = op(quant.unpack_q8)
concat_q8 = op(quant.concat_q8)
q8_rows = op(quant.q8_rows, cpu="quant.q8_rows")

# linear
linear = op(linear_reference.linear, cpu="linear.linear")
linear_q8 = op(linear_reference.linear_q8, cpu="linear.linear_q8")

# norm, rope, activation
rms_norm = op(norm.rms_norm, cpu="norm.rms_norm")
add_rms_norm = op(norm.add_rms_norm, cpu="norm.add_rms_norm")
norm_add_rms_norm = op(norm.norm_add_rms_norm, cpu="norm.norm_add_rms_norm")
rope = op(rope_reference.rope, cpu="rope.rope")
norm_rope = op(rope_reference.norm_rope, cpu="rope.norm_rope")
qk_norm_rope = op(rope_reference.qk_norm_rope, cpu="rope.qk_norm_rope")
gelu_tanh_mul = op(activation.gelu_tanh_mul, cpu="activation.gelu_tanh_mul")
silu_mul = op(activation.silu_mul, cpu="activation.silu_mul")

# attention
kv_write = op(kv_write_reference.kv_write, cpu="kv_write.kv_write")
paged_attention = op(paged_reference.paged_attention, cpu="paged_attention.paged_attention")
window_attention = op(window_reference.window_attention, cpu="window_attention.window_attention")
