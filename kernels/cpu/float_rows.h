// Rows of block-scaled small floats, to the bits of reference/block_float.py; included after vec.h by each isa_*.cpp.
//
// Scales are powers of two or e4m3 numbers, a division by them is IEEE, so nothing here depends on the instruction
// set. A group that holds an infinity or not-a-number gets a scale that decodes to not-a-number (fp8, mxfp4): what is
// broken stays visible. Subnormal float32 numbers are kept, never flushed.
#pragma once

#include <cstring>

#include "isa.h"

namespace {

using namespace treadle;

typedef uint8_t CodeVec __attribute__((vector_size(16)));

constexpr float FP8_MAX = 448, FP4_MAX = 6;
constexpr float FP8_FLOOR = 1e-4f;             // smallest |x| of a group that a scale is made for
constexpr int32_t INFINITY_BITS = 0x7f800000;
constexpr int64_t ENTRY_GROUP = 16;

static inline int32_t float_bits(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Bits of the largest |x|: as integers they are ordered like the numbers, with not-a-number above infinity.
static inline IntVec abs_bits(Vec v) { return (IntVec)v & 0x7fffffff; }

static inline int32_t max_bits(IntVec v) {
    int32_t lanes[LANES], largest = 0;
    std::memcpy(lanes, &v, sizeof v);
    for (int64_t i = 0; i < LANES; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

static inline IntVec larger(IntVec a, IntVec b) { return a > b ? a : b; }

// The largest |x| of n values, at least `floor`; infinity where one is not a number.
static inline float group_peak(const float* x, int64_t n, float floor) {
    IntVec most{};
    for (int64_t i = 0; i < n; i += LANES) most = larger(most, abs_bits(load(x + i)));
    int32_t bits = max_bits(most);
    if (bits > INFINITY_BITS) bits = INFINITY_BITS;
    const float peak = bits_float(bits);
    return peak > floor ? peak : floor;
}

// The least k with 2^k >= x, for positive normal x; 128 for infinity.
static inline int32_t ceil_log2(float x) {
    const int32_t bits = float_bits(x);
    return (bits >> 23) - 127 + ((bits & 0x7fffff) != 0);
}

static inline float power_of_two(int32_t k) { return k < -126 ? bits_float(1 << 22) : bits_float((k + 127) << 23); }

static inline float e8m0_value(uint8_t code) { return code == 255 ? bits_float(0x7fc00000) : power_of_two(code - 127); }

// Nearest e4m3 code, ties to even; 0x7f for what is not a number. |v| <= 448.
static inline IntVec to_e4m3(Vec v) {
    const IntVec bits = (IntVec)v, sign = (bits >> 24) & 0x80, magnitude = bits & 0x7fffffff;
    // below 2^-6 the steps are 2^-9: adding 2^14, whose last place is that step, rounds
    const IntVec small = (IntVec)((Vec)magnitude + 16384.0f) - float_bits(16384.0f);
    const IntVec normal = (magnitude - (120 << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
    IntVec code = magnitude < (121 << 23) ? small : normal;
    code = magnitude > INFINITY_BITS ? splat_int(0x7f) : code;
    return code | sign;
}

static inline Vec from_e4m3(IntVec code) {
    const IntVec magnitude = code & 0x7f, sign = (code & 0x80) << 24;
    const Vec small = __builtin_convertvector(magnitude, Vec) * 0.001953125f;  // 2^-9
    const IntVec normal = (magnitude << 20) + (120 << 23);
    IntVec bits = magnitude < 8 ? (IntVec)small : normal;
    bits = magnitude == 0x7f ? splat_int(0x7fc00000) : bits;
    return (Vec)(bits | sign);
}

static inline float from_e4m3(uint8_t code) { return from_e4m3(splat_int(code))[0]; }

// Nearest e2m1 code, ties to the even one, saturating; the sign survives rounding to zero.
static inline IntVec to_e2m1(Vec v) {
    const Vec wide = (Vec)((IntVec)v & 0x7fffffff);
    // a comparison is -1 where it holds
    const IntVec code = -((wide > 0.25f) + (wide >= 0.75f) + (wide > 1.25f) + (wide >= 1.75f) + (wide > 2.5f) +
                          (wide >= 3.5f) + (wide > 5.0f));
    return code | (((IntVec)v >> 28) & 8);
}

// Twice an e2m1 number is an integer: 0 1 2 3 4 6 8 12.
static inline Vec from_e2m1(IntVec code) {
    const IntVec magnitude = code & 7, odd = magnitude & 1, power = magnitude >> 1;
    // (2 + odd) * 2^(power - 1), and odd alone where the power is 0
    const IntVec normal = ((power + 126) << 23) | (odd << 22);
    const IntVec bits = power == 0 ? odd * float_bits(0.5f) : normal;
    return (Vec)(bits | ((code & 8) << 28));
}

static inline Vec clamp(Vec v, float limit) {  // not-a-number stays
    v = v > limit ? splat(limit) : v;
    return v < -limit ? splat(-limit) : v;
}

#if defined(ISA_AVX512)
static inline void store_codes(uint8_t* at, IntVec code) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8((__m512i)code));
}

static inline IntVec widen_codes(__m128i bytes) { return (IntVec)_mm512_cvtepu8_epi32(bytes); }
#else
static inline void store_codes(uint8_t* at, IntVec code) {
    const CodeVec bytes = __builtin_convertvector(code, CodeVec);
    std::memcpy(at, &bytes, sizeof bytes);
}
#endif

#if defined(ISA_AVX2)
static inline IntVec widen_codes(__m128i bytes) {
    __m256i half[2] = {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
    IntVec code;
    std::memcpy(&code, half, sizeof code);
    return code;
}
#endif

#if defined(ISA_AVX512) || defined(ISA_AVX2)
static inline IntVec load_codes(const uint8_t* at) {
    return widen_codes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
#else
static inline IntVec load_codes(const uint8_t* at) {
    CodeVec bytes;
    std::memcpy(&bytes, at, sizeof bytes);
    return __builtin_convertvector(bytes, IntVec);
}
#endif

// Of two codes in a byte the even one is the low half.
static inline void store_nibbles(uint8_t* at, IntVec code) {
    uint8_t lanes[LANES];
    store_codes(lanes, code);
    for (int64_t i = 0; i < LANES / 2; ++i) at[i] = static_cast<uint8_t>(lanes[2 * i] | (lanes[2 * i + 1] << 4));
}

#if defined(ISA_AVX512) || defined(ISA_AVX2)
static inline IntVec load_nibbles(const uint8_t* at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)), low = _mm_set1_epi8(15);
    return widen_codes(_mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)));
}
#else
static inline IntVec load_nibbles(const uint8_t* at) {
    uint8_t lanes[LANES];
    for (int64_t i = 0; i < LANES / 2; ++i) {
        lanes[2 * i] = at[i] & 15;
        lanes[2 * i + 1] = at[i] >> 4;
    }
    return load_codes(lanes);
}
#endif

struct Scale {
    float value;
    uint8_t code;
};

static inline Scale e8m0_scale(float wanted) {
    const int32_t power = ceil_log2(wanted);
    return {power > 127 ? bits_float(INFINITY_BITS) : power_of_two(power), static_cast<uint8_t>(power + 127)};
}

static inline Scale fp8_scale(const float* x, int64_t n) {
    return e8m0_scale(group_peak(x, n, FP8_FLOOR) * static_cast<float>(1.0 / 448));
}

static inline Scale fp4_scale(const float* x) {
    const float smallest = FP4_MAX * bits_float(1 << 23);
    return e8m0_scale(group_peak(x, GROUP, smallest) / FP4_MAX);
}

// An e4m3 number; not-a-number for a group that holds one.
static inline Scale entry_scale(const float* x) {
    const int32_t bits = max_bits(abs_bits(load(x)));
    const float wanted = bits_float(bits) / FP4_MAX;
    float kept = wanted > FP8_MAX ? FP8_MAX : wanted;
    kept = kept < 0.001953125f ? 0.001953125f : kept;  // 2^-9, the smallest
    const uint8_t code = static_cast<uint8_t>(to_e4m3(splat(kept))[0]);
    return {from_e4m3(code), code};
}

static void encode_row(RowKind kind, const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
    const int64_t group = kind == RowKind::fp8_row ? n : kind == RowKind::nvfp4 ? ENTRY_GROUP : GROUP;
    for (int64_t start = 0; start < n; start += group) {
        const float* values = x + start;
        if (kind == RowKind::fp8 || kind == RowKind::fp8_row) {
            const Scale scale = fp8_scale(values, group);
            for (int64_t i = 0; i < group; i += LANES)
                store_codes(codes + start + i, to_e4m3(clamp(load(values + i) / scale.value, FP8_MAX)));
            if (kind == RowKind::fp8) scales[start / GROUP] = scale.code;
            else std::memcpy(scales, &scale.value, sizeof scale.value);
        } else {
            const Scale scale = kind == RowKind::nvfp4 ? entry_scale(values) : fp4_scale(values);
            for (int64_t i = 0; i < group; i += LANES)
                store_nibbles(codes + (start + i) / 2, to_e2m1(load(values + i) / scale.value));
            scales[start / group] = scale.code;
        }
    }
}

static void decode_row(RowKind kind, const uint8_t* codes, const uint8_t* scales, int64_t n, float* out) {
    float whole = 0;
    if (kind == RowKind::fp8_row) std::memcpy(&whole, scales, sizeof whole);
    for (int64_t i = 0; i < n; i += LANES) {
        switch (kind) {
            case RowKind::fp8: store(out + i, from_e4m3(load_codes(codes + i)) * e8m0_value(scales[i / GROUP])); break;
            case RowKind::fp8_row: store(out + i, from_e4m3(load_codes(codes + i)) * whole); break;
            case RowKind::mxfp4: store(out + i, from_e2m1(load_nibbles(codes + i / 2)) * e8m0_value(scales[i / GROUP])); break;
            case RowKind::nvfp4: store(out + i, from_e2m1(load_nibbles(codes + i / 2)) * from_e4m3(scales[i / ENTRY_GROUP])); break;
        }
    }
}

// What decoding an encoded row gives; fp8 and mxfp4.
static void round_row(RowKind kind, const float* x, int64_t n, float* out) {
    for (int64_t start = 0; start < n; start += GROUP) {
        const bool is_fp8 = kind == RowKind::fp8;
        const Scale scale = is_fp8 ? fp8_scale(x + start, GROUP) : fp4_scale(x + start);
        const float back = e8m0_value(scale.code);
        for (int64_t i = start; i < start + GROUP; i += LANES) {
            const Vec scaled = load(x + i) / scale.value;
            const Vec kept = is_fp8 ? from_e4m3(to_e4m3(clamp(scaled, FP8_MAX))) : from_e2m1(to_e2m1(scaled));
            store(out + i, kept * back);
        }
    }
}

}  // namespace
