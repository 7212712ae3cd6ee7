// Kernels for AVX2 with FMA (Haswell, Zen and later).
#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "isa.h"

#pragma GCC target("avx2,fma,f16c")
#define ISA_AVX2
#include "vec.h"
#include "rows.h"
#include "float_rows.h"
#include "hyper_rows.h"
#include "gate_rows.h"
#include "matrix_block.h"
#include "latent_rows.h"

namespace {

// Two registers hold a block's 16 outputs; four rows share the loads of the weights.
constexpr int MAX_ROWS = 4;

// Each 32 bits hold four weights of one output: as words, the first and third of them, and the other two.
struct Words {
    __m256i even, odd;
};

static inline Words to_words(const int8_t* data) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}

static inline __m256i dot_step(__m256i sum, const Words& w, __m256i even, __m256i odd) {
    return _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_madd_epi16(w.even, even)), _mm256_madd_epi16(w.odd, odd));
}

static inline __m256i splat_pair(const int8_t* words) {
    int32_t pair;
    std::memcpy(&pair, words, 4);
    return _mm256_set1_epi32(pair);
}

static inline void prefetch_group(const int8_t* data) {
    for (int64_t line = 0; line < GROUP * BLOCK; line += 64) _mm_prefetch(data + PREFETCH_BYTES + line, _MM_HINT_T0);
}

template <int ROWS>
static void group_dots(const int8_t* data, const int8_t* values, int64_t stride, __m256i (*dots)[2]) {
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
    for (int64_t k4 = 0; k4 < GROUP / 4; ++k4) {
        const Words low = to_words(data + k4 * BLOCK * 4), high = to_words(data + k4 * BLOCK * 4 + 32);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
            const int8_t* four = values + r * stride + k4 * 8;
            const __m256i even = splat_pair(four), odd = splat_pair(four + 4);
            dots[r][0] = dot_step(dots[r][0], low, even, odd);
            dots[r][1] = dot_step(dots[r][1], high, even, odd);
        }
    }
}

static void store_row(const Q8Block& w, int64_t row, __m256 low, __m256 high) {
    float* out = w.out + row * w.out_stride;
    if (w.cols == BLOCK) {
        if (w.bias) {
            low = _mm256_add_ps(low, _mm256_loadu_ps(w.bias));
            high = _mm256_add_ps(high, _mm256_loadu_ps(w.bias + 8));
        }
        _mm256_storeu_ps(out, low);
        _mm256_storeu_ps(out + 8, high);
        return;
    }
    float lanes[BLOCK];
    _mm256_storeu_ps(lanes, low);
    _mm256_storeu_ps(lanes + 8, high);
    for (int64_t j = 0; j < w.cols; ++j) out[j] = lanes[j] + (w.bias ? w.bias[j] : 0);
}

template <int ROWS>
static void tile(const Q8Rows& x, const Q8Block& w, int64_t row) {
    const int64_t groups = x.k / GROUP;
    __m256 total[ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) total[r][0] = total[r][1] = _mm256_setzero_ps();
    for (int64_t g = 0; g < groups; ++g) {
        if (row == 0) prefetch_group(w.data + g * GROUP * BLOCK);
        __m256i dots[ROWS][2];
        group_dots<ROWS>(w.data + g * GROUP * BLOCK, x.group(row, g), x.k * 2, dots);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
            const auto* at = reinterpret_cast<const __m128i*>(w.scales + g * BLOCK + h * 8);
            const __m256 weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(at));
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r) {
                const __m256 row_scale = _mm256_set1_ps(x.scales[(row + r) * groups + g]);
                const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r][h]), row_scale);
                total[r][h] = _mm256_fmadd_ps(scaled, weight_scale, total[r][h]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) store_row(w, row + r, total[r][0], total[r][1]);
}

static void q8_block(const Q8Rows& x, const Q8Block& w) {
    int64_t row = 0;
    for (; row + MAX_ROWS <= x.rows; row += MAX_ROWS) tile<MAX_ROWS>(x, w, row);
    switch (x.rows - row) {
        case 3: return tile<3>(x, w, row);
        case 2: return tile<2>(x, w, row);
        case 1: return tile<1>(x, w, row);
    }
}

}  // namespace

namespace treadle {
const Kernels avx2_kernels = {"avx2", quantize_row<store_words>, q8_block, pack_block, unpack_row, rms_norm, add, rotate, gated,
    encode_row, decode_row, round_row, hyper_weights, hyper_collapse, hyper_expand, engram_gate, pool_pair,
    matrix_block, clamped_swiglu, latent_row, index_block};
}
#endif
