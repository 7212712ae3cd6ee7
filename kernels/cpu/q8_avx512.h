// The int8 product of AVX-512 VNNI; included by the translation units that may use it.
#pragma once

namespace {

// Twelve rows of sums, eight registers of weights and the temporaries fill the 32 registers.
constexpr int64_t MAX_ROWS = 12;

static inline void prefetch_group(const int8_t* data) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < GROUP * BLOCK; line += 64) _mm_prefetch(data + PREFETCH_BYTES + line, _MM_HINT_T0);
}

// The dot instruction multiplies unsigned by signed bytes: weights are read as w + 128 (a flip of the top bit) and
// the sum starts at the group's offset, -128 times the sum of x. All integers, so nothing is rounded.
template <int ROWS>
static void q8_tile(const Q8Rows& x, const Q8Block& w, int64_t row) {
    const int64_t groups = x.k / GROUP;
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512 total[ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g) {
        const int8_t* data = w.data + g * GROUP * BLOCK;
        if (row == 0) prefetch_group(data);
        __m512i weights[GROUP / 4];
        for (int k4 = 0; k4 < GROUP / 4; ++k4)
            weights[k4] = _mm512_xor_si512(_mm512_loadu_si512(data + k4 * BLOCK * 4), flip);
        const auto* scale_at = reinterpret_cast<const __m256i*>(w.scales + g * BLOCK);
        const __m512 weight_scale = _mm512_cvtph_ps(_mm256_loadu_si256(scale_at));
        // unrolled by force: left alone, the compiler keeps the sums in memory
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) {
            const int8_t* values = x.values + (row + r) * x.k + g * GROUP;
            const int64_t group = (row + r) * groups + g;
            __m512i dots = _mm512_set1_epi32(x.offsets[group]);
            for (int k4 = 0; k4 < GROUP / 4; ++k4) {
                int32_t four;
                std::memcpy(&four, values + k4 * 4, 4);
                dots = _mm512_dpbusd_epi32(dots, weights[k4], _mm512_set1_epi32(four));
            }
            const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dots), _mm512_set1_ps(x.scales[group]));
            total[r] = _mm512_fmadd_ps(scaled, weight_scale, total[r]);
        }
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
