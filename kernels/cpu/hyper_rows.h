// Hyper-connections of one row; included after vec.h by each isa_*.cpp. Specification: reference/hyper.py.
//
// The mixture of four streams is four by four weights: one vector of sixteen lanes, lane 4 i + j being comb[i, j], so
// that a normalisation of Sinkhorn is two exchanges of lanes, two sums and one division.
#pragma once

#include <cmath>

#include "isa.h"

namespace {

using namespace treadle;

// The sum of the four lanes with the same first index (or second), in each of them.
static inline Vec row_sums(Vec v) {
    const Vec a = v + __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    return a + __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
}

static inline Vec column_sums(Vec v) {
    const Vec a = v + __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    return a + __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}

static inline Vec row_maxima(Vec v) {
    const Vec a = vmax(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    return vmax(a, __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
}

static inline Vec sinkhorn(Vec logits, int64_t iterations, float floor) {
    const Vec powers = vexp(vmax(logits - row_maxima(logits), splat(-87)));
    Vec comb = powers / row_sums(powers) + floor;
    comb /= column_sums(comb) + floor;
    for (int64_t i = 1; i < iterations; ++i) {
        comb /= row_sums(comb) + floor;
        comb /= column_sums(comb) + floor;
    }
    return comb;
}

// out: HYPER_WEIGHTS projections of x [n], not yet scaled; returns the mean square of x.
static inline float project(const float* fn, const float* x, int64_t n, float* out) {
    constexpr int64_t AT_ONCE = 8;  // rows of fn that share a load of x
    static_assert(HYPER_WEIGHTS % AT_ONCE == 0, "groups of projections");
    Vec squares{};
    for (int64_t i = 0; i < n; i += LANES) squares += load(x + i) * load(x + i);
    for (int64_t first = 0; first < HYPER_WEIGHTS; first += AT_ONCE) {
        Vec sums[AT_ONCE] = {};
        for (int64_t i = 0; i < n; i += LANES) {
            const Vec v = load(x + i);
#pragma GCC unroll 8
            for (int64_t j = 0; j < AT_ONCE; ++j) sums[j] += v * load(fn + (first + j) * n + i);
        }
        for (int64_t j = 0; j < AT_ONCE; ++j) out[first + j] = sum_lanes(sums[j]);
    }
    return sum_lanes(squares) / static_cast<float>(n);
}

// x [HYPER_STREAMS, d] -> pre, post, comb
static void hyper_weights(const HyperMatrix& m, const float* x, float* out) {
    constexpr int64_t N = HYPER_STREAMS;
    float u[HYPER_WEIGHTS];
    const float statistic = 1 / std::sqrt(project(m.fn, x, N * m.d, u) + m.eps);
    for (float& value : u) value *= statistic;
    Vec gates = load_part(u, 2 * N);
    const Vec base = load_part(m.base, 2 * N);
    float scales[LANES] = {};
    for (int64_t i = 0; i < N; ++i) scales[i] = m.scale[0], scales[N + i] = m.scale[1];
    gates = sigmoid(gates * load(scales) + base);
    float values[LANES];
    store(values, gates);
    for (int64_t i = 0; i < N; ++i) out[i] = values[i] + m.floor;
    for (int64_t i = N; i < 2 * N; ++i) out[i] = 2 * values[i];
    store(out + 2 * N, sinkhorn(load(u + 2 * N) * m.scale[2] + load(m.base + 2 * N), m.iterations, m.floor));
}

static void hyper_collapse(const float* x, const float* pre, int64_t d, float* out) {
    for (int64_t i = 0; i < d; i += LANES) {
        Vec sum = load(x + i) * pre[0];
        for (int64_t s = 1; s < HYPER_STREAMS; ++s) sum += load(x + s * d + i) * pre[s];
        store(out + i, sum);
    }
}

static void hyper_expand(const float* y, const float* post, const float* comb, const float* x, int64_t d, float* out) {
    constexpr int64_t N = HYPER_STREAMS;
    for (int64_t i = 0; i < d; i += LANES) {
        const Vec added = load(y + i);
        Vec old[N];
        for (int64_t s = 0; s < N; ++s) old[s] = load(x + s * d + i);
        for (int64_t j = 0; j < N; ++j) {
            Vec sum = added * post[j];
            for (int64_t s = 0; s < N; ++s) sum += old[s] * comb[s * N + j];
            store(out + j * d + i, sum);
        }
    }
}

}  // namespace
