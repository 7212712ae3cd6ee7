// Sixteen floats at a time, written with the compiler's vector extension: each isa_*.cpp includes this after its
// target pragma and gets code for its own registers. Results are the same bits in all of them, because the
// operations and their order are fixed here (the build turns contraction to fused multiply-adds off).
// Where the compiler makes poor code of an operation, ISA_AVX512 and ISA_AVX2 choose instructions: the translation
// unit defines one of them, because g++ does not define its own macros for a target that a pragma names.
// Everything is static: two translation units with different targets must not share an inline function.
#pragma once

#include <cstdint>
#include <cstring>

namespace {

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IntVec __attribute__((vector_size(64)));
typedef int8_t ByteVec __attribute__((vector_size(16)));
typedef int16_t WordVec __attribute__((vector_size(32)));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));
constexpr int64_t LANES = 16;

static inline Vec splat(float value) { return value - Vec{}; }
static inline IntVec splat_int(int32_t value) { return value - IntVec{}; }

static inline Vec load(const float* at) {
    Vec v;
    std::memcpy(&v, at, sizeof v);
    return v;
}

static inline void store(float* at, Vec v) { std::memcpy(at, &v, sizeof v); }

// Reads n < 16 floats; the rest are zero.
static inline Vec load_part(const float* at, int64_t n) {
    float lanes[LANES] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = at[i];
    return load(lanes);
}

static inline void store_part(float* at, Vec v, int64_t n) {
    float lanes[LANES];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i) at[i] = lanes[i];
}

static inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
static inline Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
static inline Vec vabs(Vec a) { return (Vec)((IntVec)a & 0x7fffffff); }

static inline float sum_lanes(Vec v) {
    const Vec8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const Vec4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}

static inline float max_lanes(Vec v) {
    const Vec8 low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    const Vec8 high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const Vec8 a = low > high ? low : high;
    const Vec4 c = __builtin_shufflevector(a, a, 0, 1, 2, 3), d = __builtin_shufflevector(a, a, 4, 5, 6, 7);
    const Vec4 b = c > d ? c : d;
    const float e = b[0] > b[2] ? b[0] : b[2], f = b[1] > b[3] ? b[1] : b[3];
    return e > f ? e : f;
}

// Nearest integer, half to even, for |v| < 2^22: adding 1.5 * 2^23 leaves the integer in the low mantissa bits.
static inline IntVec nearest(Vec v) {
    const Vec magic = splat(12582912.0f);
    return (IntVec)(v + magic) - (IntVec)magic;
}

// e^v for |v| <= 87: v = n ln 2 + r, then a polynomial of degree 6 (relative error below 2e-7).
static inline Vec vexp(Vec v) {
    const IntVec n = nearest(v * 1.44269504f);
    const Vec whole = __builtin_convertvector(n, Vec);
    const Vec r = (v - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Vec p = splat(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (Vec)((n + 127) << 23);
}

static inline Vec sigmoid(Vec v) { return 1.0f / (1.0f + vexp(-vmax(vmin(v, splat(87)), splat(-87)))); }

}  // namespace
