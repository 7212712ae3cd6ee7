// The int8 product of AVX-512 VNNI; included by the translation units that may use it.
#pragma once

namespace {

// Twelve rows of sums, eight registers of weights and eight of dots fill the 32 registers but for temporaries.
constexpr int MAX_ROWS = 12;
constexpr int DOT_ROWS = 4;  // whose dots, two each, are summed side by side to hide the time an instruction takes

static inline void prefetch_group(const int8_t* data) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < GROUP * BLOCK; line += 64) _mm_prefetch(data + PREFETCH_BYTES + line, _MM_HINT_T0);
}

static inline __m512i splat_four(const int8_t* values) {
    int32_t four;
    std::memcpy(&four, values, 4);
    return _mm512_set1_epi32(four);
}

// The dot instruction multiplies unsigned by signed bytes: weights are read as w + 128 (a flip of the top bit) and
// the sum starts at the group's offset, -128 times the sum of x. High and low bytes of x are summed apart; all are
// integers, so nothing is rounded. Adds ROWS rows of one group to `total`.
template <int ROWS>
static inline void add_dots(const Q8Rows& x, const __m512i* weights, __m512 weight_scale, int64_t row, int64_t g, __m512* total) {
    const int64_t groups = x.k / GROUP;
    __m512i high[ROWS], low[ROWS];
    // unrolled by force: left alone, the compiler keeps the sums in memory
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
        high[r] = _mm512_setzero_si512();
        low[r] = _mm512_set1_epi32(x.offsets[(row + r) * groups + g]);
    }
#pragma GCC unroll 8
    for (int k4 = 0; k4 < GROUP / 4; ++k4) {
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
            const int8_t* values = x.group(row + r, g) + k4 * 4;
            high[r] = _mm512_dpbusd_epi32(high[r], weights[k4], splat_four(values));
            low[r] = _mm512_dpbusd_epi32(low[r], weights[k4], splat_four(values + GROUP));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
        const __m512 dots = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high[r], 8), low[r]));
        const __m512 scaled = _mm512_mul_ps(dots, _mm512_set1_ps(x.scales[(row + r) * groups + g]));
        total[r] = _mm512_fmadd_ps(scaled, weight_scale, total[r]);
    }
}

template <int ROWS>
static void q8_tile(const Q8Rows& x, const Q8Block& w, int64_t row) {
    const __m512i flip = _mm512_set1_epi8(-128);
    constexpr int WHOLE = ROWS - ROWS % DOT_ROWS;
    __m512 total[ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
    for (int64_t g = 0; g < x.k / GROUP; ++g) {
        const int8_t* data = w.data + g * GROUP * BLOCK;
        if (row == 0) prefetch_group(data);
        __m512i weights[GROUP / 4];
        for (int k4 = 0; k4 < GROUP / 4; ++k4)
            weights[k4] = _mm512_xor_si512(_mm512_loadu_si512(data + k4 * BLOCK * 4), flip);
        const auto* scale_at = reinterpret_cast<const __m256i*>(w.scales + g * BLOCK);
        const __m512 weight_scale = _mm512_cvtph_ps(_mm256_loadu_si256(scale_at));
#pragma GCC unroll 3
        for (int r = 0; r < WHOLE; r += DOT_ROWS) add_dots<DOT_ROWS>(x, weights, weight_scale, row + r, g, total + r);
        if constexpr (ROWS > WHOLE) add_dots<ROWS - WHOLE>(x, weights, weight_scale, row + WHOLE, g, total + WHOLE);
    }
    const __mmask16 mask = static_cast<__mmask16>((1u << w.cols) - 1);
    const __m512 bias = w.bias ? _mm512_maskz_loadu_ps(mask, w.bias) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r)
        _mm512_mask_storeu_ps(w.out + (row + r) * w.out_stride, mask, _mm512_add_ps(total[r], bias));
}

static void q8_rows(const Q8Rows& x, const Q8Block& w, int64_t row, int64_t count) {
    switch (count) {
        case 1: return q8_tile<1>(x, w, row);
        case 2: return q8_tile<2>(x, w, row);
        case 3: return q8_tile<3>(x, w, row);
        case 4: return q8_tile<4>(x, w, row);
        case 5: return q8_tile<5>(x, w, row);
        case 6: return q8_tile<6>(x, w, row);
        case 7: return q8_tile<7>(x, w, row);
        case 8: return q8_tile<8>(x, w, row);
        case 9: return q8_tile<9>(x, w, row);
        case 10: return q8_tile<10>(x, w, row);
        case 11: return q8_tile<11>(x, w, row);
        case 12: return q8_tile<12>(x, w, row);
    }
}

// Tiles of nearly equal height: 13 rows are 7 and 6, not 12 and 1.
static void q8_block(const Q8Rows& x, const Q8Block& w) {
    const int64_t tiles = (x.rows + MAX_ROWS - 1) / MAX_ROWS;
    int64_t row = 0;
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t end = x.rows * (t + 1) / tiles;
        q8_rows(x, w, row, end - row);
        row = end;
    }
}

}  // namespace
