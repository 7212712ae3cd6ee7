// One row of attention over latents, and scores of an indexer; included after matrix_block.h by each isa_*.cpp.
// Specifications: reference/latent_attention.py, reference/indexer.py.
//
// The order of every sum depends on the keys that the row sees, in their order, and on nothing else.
#pragma once

#include "isa.h"

namespace {

using namespace treadle;

static inline float dot(const float* a, const float* b, int64_t n) {
    Vec sum{};
    for (int64_t i = 0; i < n; i += LANES) sum = fused(load(a + i), load(b + i), sum);
    return sum_lanes(sum);
}

// Scores become weights e^(score - largest); returns their sum, the sink's weight included.
static inline float softmax(float* scores, int64_t count, float sink) {
    float largest = sink;
    for (int64_t j = 0; j < count; ++j) largest = scores[j] > largest ? scores[j] : largest;
    const Vec lowest = splat(-87);
    Vec sum{};
    for (int64_t j = 0; j < count; j += LANES) {
        const int64_t rest = count - j < LANES ? count - j : LANES;
        const Vec shifted = vmax(lowest, load_part(scores + j, rest) - largest);  // not-a-number stays
        store_part(scores + j, vexp(shifted), rest);
        sum += load_part(scores + j, rest);
    }
    return sum_lanes(sum) + vexp(vmax(lowest, splat(sink - largest)))[0];
}

// `width` channels of the weighted sum of keys.
template <int64_t VECS>
static inline void add_keys(const LatentRow& row, const float* weights, int64_t from, float total, float* out) {
    Vec sums[VECS] = {};
    for (int64_t j = 0; j < row.count; ++j) {
        const Vec weight = splat(weights[j]);
#pragma GCC unroll 4
        for (int64_t v = 0; v < VECS; ++v) sums[v] = fused(weight, load(row.keys[j] + from + v * LANES), sums[v]);
    }
    for (int64_t v = 0; v < VECS; ++v) store(out + from + v * LANES, sums[v] / total);
}

static void latent_row(const LatentRow& row, const float* sink, float* scores) {
    constexpr int64_t AT_ONCE = 4;
    for (int64_t h = 0; h < row.heads; ++h) {
        const float* q = row.q + h * row.d;
        float* out = row.out + h * row.d;
        for (int64_t j = 0; j < row.count; ++j) scores[j] = dot(q, row.keys[j], row.d) * row.scale;
        const float total = softmax(scores, row.count, sink[h]);
        int64_t from = 0;
        for (; from + AT_ONCE * LANES <= row.d; from += AT_ONCE * LANES) add_keys<AT_ONCE>(row, scores, from, total, out);
        for (; from < row.d; from += LANES) add_keys<1>(row, scores, from, total, out);
    }
}

// Scores of BLOCK keys, [d, BLOCK] side by side: sum_h weight[h] * relu(q[h] . key).
static void index_block(const float* q, const float* weight, int64_t heads, int64_t d, const float* keys, float* out) {
    Vec total{};
    for (int64_t h = 0; h < heads; ++h) {
        Vec even{}, odd{};
        for (int64_t i = 0; i < d; i += 2) {
            even = fused(splat(q[h * d + i]), load(keys + i * BLOCK), even);
            odd = fused(splat(q[h * d + i + 1]), load(keys + (i + 1) * BLOCK), odd);
        }
        total = fused(vmax(Vec{}, even + odd), splat(weight[h]), total);  // not-a-number stays
    }
    store(out, total);
}

}  // namespace
