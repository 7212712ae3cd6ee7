"""Device functions for small floats: e4m3, e2m1 and their scales, to the bits of
`reference/block_float.py`.

Codes are made with integers: what a compiler's conversion does with ties, subnormals and
not-a-number differs between a device and the interpreter. Operands of products are split into
parts that bfloat16 holds exactly, so that a product on tensor cores loses nothing but the order
of its sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..reference import block_float as reference
from ..reference.block_float import RowKind

FP8, MXFP4, NVFP4, FP8_ROW, BFLOAT16, FLOAT32 = (tl.constexpr(int(kind)) for kind in RowKind)
GROUP, ENTRY_GROUP = tl.constexpr(reference.GROUP), tl.constexpr(reference.ENTRY_GROUP)
FP8_MAX = tl.constexpr(448.0)
FP8_INVERSE = tl.constexpr(1 / 448.0)
FP8_FLOOR = tl.constexpr(1e-4)
FP4_MAX = tl.constexpr(6.0)
FP4_FLOOR = tl.constexpr(6.0 * 2.0**-126)
ENTRY_FLOOR = tl.constexpr(2.0**-9)
INFINITY = tl.constexpr(float("inf"))

# Of four bytes: sign and the rest at their places in bfloat16, whose exponent's bias is higher by
# 120 and 126, then times that power of two.
E4M3_ASM = tl.constexpr("""
{
.reg .b32 t, u, s, c, z;
mov.b32 c, 0x7B807B80;
mov.b32 z, 0x80008000;
prmt.b32 t, $2, 0, 0x4140;
prmt.b32 u, $2, 0, 0x4342;
and.b32 s, t, 0x00800080;
shl.b32 s, s, 8;
and.b32 t, t, 0x007F007F;
shl.b32 t, t, 4;
or.b32 t, t, s;
fma.rn.bf16x2 $0, t, c, z;
and.b32 s, u, 0x00800080;
shl.b32 s, s, 8;
and.b32 u, u, 0x007F007F;
shl.b32 u, u, 4;
or.b32 u, u, s;
fma.rn.bf16x2 $1, u, c, z;
}
""")
E2M1_ASM = tl.constexpr("""
{
.reg .b32 t, u, s, m, c, z;
mov.b32 c, 0x7E807E80;
mov.b32 z, 0x80008000;
prmt.b32 t, $4, 0, 0x4140;
prmt.b32 u, $4, 0, 0x4342;
and.b32 s, t, 0x00080008;
shl.b32 s, s, 12;
and.b32 m, t, 0x00070007;
shl.b32 m, m, 6;
or.b32 m, m, s;
fma.rn.bf16x2 $0, m, c, z;
and.b32 s, u, 0x00080008;
shl.b32 s, s, 12;
and.b32 m, u, 0x00070007;
shl.b32 m, m, 6;
or.b32 m, m, s;
fma.rn.bf16x2 $1, m, c, z;
and.b32 s, t, 0x00800080;
shl.b32 s, s, 8;
and.b32 m, t, 0x00700070;
shl.b32 m, m, 2;
or.b32 m, m, s;
fma.rn.bf16x2 $2, m, c, z;
and.b32 s, u, 0x00800080;
shl.b32 s, s, 8;
and.b32 m, u, 0x00700070;
shl.b32 m, m, 2;
or.b32 m, m, s;
fma.rn.bf16x2 $3, m, c, z;
}
""")


@triton.jit
def ceil_log2(x):
    """The least k with 2^k >= x, for positive normal float32."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(tl.int32)


@triton.jit
def power_of_two(k):
    """2^k in float32, exact; k in -127 .. 128, where 2^128 is infinity."""
    bits = tl.where(k < -126, 1 << 22, (k + 127) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def e8m0_decode(code):
    """2^(code - 127) in float32 of bytes; 255 is not a number."""
    wide = code.to(tl.int32)
    bits = tl.where(wide == 0, 1 << 22, wide << 23)
    bits = tl.where(wide == 255, 0x7FC00000, bits)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def e4m3_encode(x):
    """Codes (int32) of float32 values within 448: nearest, ties to even."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    wide = size.to(tl.float32, bitcast=True)
    # Normal: three bits of the fraction stay, the exponent's bias falls from 127 to 7.
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # Subnormal: beside 2^14 the last place of a float32 is 2^-9, one code.
    small = (wide + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(wide < 0.015625, small, normal)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return code | ((bits >> 24) & 0x80)


@triton.jit
def e4m3_decode(code):
    """Float32 values of bytes."""
    wide = code.to(tl.int32)
    exponent, fraction = (wide >> 3) & 15, wide & 7
    normal = (((exponent + 120) << 23) | (fraction << 20)).to(tl.float32, bitcast=True)
    value = tl.where(exponent == 0, fraction.to(tl.float32) * 0.001953125, normal)
    value = tl.where((wide & 0x7F) == 0x7F, float("nan"), value)
    signed = value.to(tl.int32, bitcast=True) | ((wide & 0x80) << 24)
    return signed.to(tl.float32, bitcast=True)


@triton.jit
def e4m3_value(code):
    """As `e4m3_decode`, in fewer steps: the code of what is not a number is 480."""
    wide = code.to(tl.int32)
    bits = ((wide & 0x7F) << 20) | ((wide & 0x80) << 24)
    return bits.to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2^120, to the smaller bias


@triton.jit
def e2m1_encode(x):
    """Codes 0..15 (int32) of float32 values: nearest, ties to the even code, saturating at 6."""
    bits = x.to(tl.int32, bitcast=True)
    size = (bits & 0x7FFFFFFF).to(tl.float32, bitcast=True)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32)
    code += (size > 1.25).to(tl.int32) + (size >= 1.75).to(tl.int32)
    code += (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32) + (size > 5.0).to(tl.int32)
    return code | ((bits >> 28) & 8)


@triton.jit
def e2m1_decode(code):
    """Float32 values of codes 0..15 (int32)."""
    bits = ((code & 7) << 22) | ((code & 8) << 28)
    return bits.to(tl.float32, bitcast=True) * 8.507059173023462e37  # 2^126, to the smaller bias


@triton.jit
def magnitude(x):
    """|x|, infinity where x is not a number: maxima on a device may drop those."""
    size = tl.abs(x)
    return tl.where(size != size, INFINITY, size)


@triton.jit
def fp8_power(largest):
    """k of the scale 2^k of a group whose largest magnitude this is."""
    return ceil_log2(tl.maximum(largest, FP8_FLOOR) * FP8_INVERSE)


@triton.jit
def fp8_code(x, scale):
    """e4m3 codes (int32) of x over its group's scale."""
    ratio = tl.div_rn(x, scale)
    inside = tl.minimum(tl.maximum(ratio, -FP8_MAX), FP8_MAX)
    return e4m3_encode(tl.where(ratio != ratio, float("nan"), inside))


@triton.jit
def mxfp4_power(largest):
    """k of the scale 2^k of a group of e2m1 whose largest magnitude this is."""
    return ceil_log2(tl.div_rn(tl.maximum(largest, FP4_FLOOR), FP4_MAX))


@triton.jit
def nvfp4_scale(largest):
    """Code (int32) of the e4m3 scale of a group of 16; `largest` may be not a number."""
    scale = tl.div_rn(largest, FP4_MAX)
    inside = tl.minimum(tl.maximum(scale, ENTRY_FLOOR), FP8_MAX)
    return e4m3_encode(tl.where(scale != scale, float("nan"), inside))


@triton.jit
def upper_half(x):
    """x with the low 16 bits cut off: float32 that bfloat16 holds exactly."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def e4m3_operand(code, IS_FAST: tl.constexpr):
    """Values of bytes as operands of a product: bfloat16 on a device, else float32. A byte that is
    not a number is read as 480 there: a packed matrix has such a weight's scale not a number."""
    if IS_FAST:
        return tl.inline_asm_elementwise(
            E4M3_ASM,
            "=r,=r,r",
            [code],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=4,
        )
    else:  # noqa: RET505 (what follows a return is compiled too)
        return e4m3_decode(code)


@triton.jit
def e2m1_operands(byte, IS_FAST: tl.constexpr):
    """Values of the low and of the high halves of bytes, as `e4m3_operand`."""
    if IS_FAST:
        return tl.inline_asm_elementwise(
            E2M1_ASM,
            "=r,=r,=r,=r,r",
            [byte],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:  # noqa: RET505
        wide = byte.to(tl.int32)
        return e2m1_decode(wide & 15), e2m1_decode(wide >> 4)


@triton.jit
def product(a, b, PARTS: tl.constexpr):
    """a @ b in float32, where b holds small floats. a of one part is of b's type; float32 of three
    parts is cut into what bfloat16 holds, smallest part first."""
    if PARTS == 1:
        return tl.dot(a, b)
    else:  # noqa: RET505
        high, middle, low = split(a)
        total = tl.dot(low.to(b.dtype), b)
        total = tl.dot(middle.to(b.dtype), b, total)
        return tl.dot(high.to(b.dtype), b, total)


@triton.jit
def sortable(x):
    """int32 in the order of float32 values: zeros are equal, what is not a number is largest."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    keys = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(x != x, 0x7FFFFFFF, keys)


@triton.jit
def split(x):
    """Three float32 that bfloat16 holds, largest first, of which x is the sum."""
    high = upper_half(x)
    rest = x - high
    middle = upper_half(rest)
    return high, middle, rest - middle


@triton.jit
def split_dot(high, middle, low, b, KIND: tl.constexpr, IS_FAST: tl.constexpr):
    """(high + middle + low) @ b, of parts as `split` gives them and unpacked values b."""
    if IS_FAST and KIND != FLOAT32:
        narrow = b.to(tl.bfloat16)
        total = tl.dot(low.to(tl.bfloat16), narrow)
        total = tl.dot(middle.to(tl.bfloat16), narrow, total)
        return tl.dot(high.to(tl.bfloat16), narrow, total)
    else:  # noqa: RET505
        return tl.dot(low + middle + high, b, input_precision="ieee")


@triton.jit
def load_values(row, channel, inside, size, KIND: tl.constexpr):
    """Values of packed rows. Shapes: row `[K, 1]` pointers to bytes, channel `[1, D]`, inside `[K,
    D]`; `size` is the number of values of a row."""
    if KIND == FP8:
        code = tl.load(row + channel, inside, other=0)
        at = row + size + channel // GROUP  # of a code that is not a number, the scale is not one
        return e4m3_value(code) * e8m0_decode(tl.load(at, inside, other=127))
    elif (KIND == MXFP4) or (KIND == NVFP4):  # noqa: RET505, SIM109 (Triton has no `in`)
        byte = tl.load(row + channel // 2, inside, other=0).to(tl.int32)
        values = e2m1_decode((byte >> ((channel % 2) * 4)) & 15)
        if KIND == MXFP4:
            at = row + size // 2 + channel // GROUP
            return values * e8m0_decode(tl.load(at, inside, other=127))
        else:  # noqa: RET505
            at = row + size // 2 + channel // ENTRY_GROUP
            return values * e4m3_decode(tl.load(at, inside, other=0))
    elif KIND == FP8_ROW:
        code = tl.load(row + channel, inside, other=0)
        at = (row + size + channel * 0).to(tl.pointer_type(tl.float32))
        return e4m3_decode(code) * tl.load(at, inside, other=0.0)
    elif KIND == BFLOAT16:
        at = row.to(tl.pointer_type(tl.bfloat16)) + channel
        return tl.load(at, inside, other=0.0).to(tl.float32)
    else:
        return tl.load(row.to(tl.pointer_type(tl.float32)) + channel, inside, other=0.0)
