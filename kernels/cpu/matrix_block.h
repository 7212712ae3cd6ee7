// Products with one block of a packed matrix; included after float_rows.h by each isa_*.cpp.
//
// A block is unpacked once per call, to k vectors of BLOCK weights, and then read by all rows: what is cheap for one
// row, since unpacking takes a few instructions for 16 weights, costs nothing for many. Each output is four sums, of
// the products with k = 0, 1, 2, 3 modulo 4, added at the end: the order of every sum is fixed, whatever the number
// of rows, and four chains hide the time that a sum takes.
#pragma once

#include "isa.h"

namespace {

using namespace treadle;

constexpr int64_t CHAINS = 4;

#if defined(ISA_AVX512)
constexpr int64_t TILE_ROWS = 4;  // with four chains 16 of the 32 registers
static inline Vec fused(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
#elif defined(ISA_AVX2)
constexpr int64_t TILE_ROWS = 1;
static inline Vec fused(Vec a, Vec b, Vec c) {
    __m256 x[2], y[2], z[2];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    std::memcpy(z, &c, sizeof c);
    for (int h = 0; h < 2; ++h) z[h] = _mm256_fmadd_ps(x[h], y[h], z[h]);
    std::memcpy(&c, z, sizeof c);
    return c;
}
#else
constexpr int64_t TILE_ROWS = 1;
static inline Vec fused(Vec a, Vec b, Vec c) { return a * b + c; }
#endif

// e4m3 codes are float16 numbers without the last bits of the mantissa, 2^8 times too small: the conversion from
// float16 is the fastest way, and takes subnormal numbers at full speed. The code that is not a number becomes 480;
// packing gave its group a scale that is not a number.
static inline Vec fp8_weights(const uint8_t* codes) {
#if defined(ISA_AVX512) || defined(ISA_AVX2)
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
#if defined(ISA_AVX512)
    return (Vec)_mm512_cvtph_ps(half) * 256.0f;
#else
    float lanes[BLOCK];
    _mm256_storeu_ps(lanes, _mm256_cvtph_ps(_mm256_castsi256_si128(half)));
    _mm256_storeu_ps(lanes + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)));
    return load(lanes) * 256.0f;
#endif
#else
    return from_e4m3(load_codes(codes));
#endif
}

// Of 16 bytes the low halves are even k, the high ones odd k.
static inline void fp4_weights(const uint8_t* codes, Vec* even, Vec* odd) {
    const IntVec bytes = load_codes(codes);
#if defined(ISA_AVX512)
    const __m512 table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    *even = (Vec)_mm512_permutexvar_ps((__m512i)bytes, table);  // reads the low four bits only
    *odd = (Vec)_mm512_permutexvar_ps((__m512i)(bytes >> 4), table);
#else
    *even = from_e2m1(bytes & 15);
    *odd = from_e2m1(bytes >> 4);
#endif
}

static inline Vec e8m0_values(const uint8_t* codes) {
    const IntVec code = load_codes(codes);
    const IntVec normal = code == 0 ? splat_int(1 << 22) : code << 23;
    return (Vec)(code == 255 ? splat_int(0x7fc00000) : normal);
}

static void unpack_block(const Matrix& w, float* panel) {
    for (int64_t g = 0; g < w.k / GROUP; ++g) {
        const Vec scale = e8m0_values(w.scales + g * BLOCK);
        float* to = panel + g * GROUP * BLOCK;
        if (w.kind == MatrixKind::fp8) {
            const uint8_t* codes = w.data + g * GROUP * BLOCK;
            for (int64_t i = 0; i < GROUP; ++i) store(to + i * BLOCK, fp8_weights(codes + i * BLOCK) * scale);
        } else {
            const uint8_t* codes = w.data + g * GROUP * BLOCK / 2;
            for (int64_t i = 0; i < GROUP / 2; ++i) {
                Vec even, odd;
                fp4_weights(codes + i * BLOCK, &even, &odd);
                store(to + 2 * i * BLOCK, even * scale);
                store(to + (2 * i + 1) * BLOCK, odd * scale);
            }
        }
    }
}

template <int64_t ROWS>
static inline void block_tile(const float* weights, int64_t k, const MatrixRows& rows, int64_t first, int64_t cols) {
    Vec sums[ROWS][CHAINS] = {};
    const float* x[ROWS];
    for (int64_t r = 0; r < ROWS; ++r) x[r] = rows.row(first + r);
    const int64_t whole = k - k % CHAINS;
    for (int64_t i = 0; i < whole; i += CHAINS) {
#pragma GCC unroll 4
        for (int64_t c = 0; c < CHAINS; ++c) {
            const Vec w = load(weights + (i + c) * BLOCK);
#pragma GCC unroll 4
            for (int64_t r = 0; r < ROWS; ++r) sums[r][c] = fused(splat(x[r][i + c]), w, sums[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < ROWS; ++r) {
        for (int64_t i = whole; i < k; ++i)
            sums[r][0] = fused(splat(x[r][i]), load(weights + i * BLOCK), sums[r][0]);
        const Vec total = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
        float* out = rows.out + (first + r) * rows.out_stride;
        if (cols == BLOCK) store(out, total);
        else store_part(out, total, cols);
    }
}

static void matrix_block(const Matrix& w, const MatrixRows& rows, int64_t cols, float* panel) {
    const float* weights = reinterpret_cast<const float*>(w.data);
    if (w.kind != MatrixKind::float32) {
        unpack_block(w, panel);
        weights = panel;
    }
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows.rows; r += TILE_ROWS) block_tile<TILE_ROWS>(weights, w.k, rows, r, cols);
    for (; r < rows.rows; ++r) block_tile<1>(weights, w.k, rows, r, cols);
}

static inline Vec swiglu(Vec gate, Vec up, float limit) {
    gate = gate > limit ? splat(limit) : gate;  // not-a-number stays
    return gate * sigmoid(gate) * clamp(up, limit);
}

// silu(min(gate, limit)) * clip(up, -limit, limit) * factor
static void clamped_swiglu(const float* gate, const float* up, int64_t n, float limit, float factor, float* out) {
    const int64_t whole = n - n % LANES, rest = n - whole;
    for (int64_t i = 0; i < whole; i += LANES) store(out + i, swiglu(load(gate + i), load(up + i), limit) * factor);
    if (rest) store_part(out + whole, swiglu(load_part(gate + whole, rest), load_part(up + whole, rest), limit) * factor, rest);
}

}  // namespace
