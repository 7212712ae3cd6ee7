// Gated sums of one row: of a stream with its n-gram memory, and of two positions that become one entry; included after
// vec.h by each isa_*.cpp. Specifications: reference/engram.py, reference/compressor.py.
//
// torch makes the last few sigmoids of a tensor by another function than the others, and what is last depends on the
// number of rows: these are here not for speed, but so that a row depends on itself alone.
#pragma once

#include <cmath>

#include "isa.h"

namespace {

using namespace treadle;

// Not-a-number stays, which `sigmoid` does not promise.
static inline Vec strict_sigmoid(Vec v) { return v == v ? sigmoid(v) : v; }

// Calls body(i, n) for vectors of n = LANES floats from i on, the last one of what is left.
template <typename Body>
static inline void for_each_vec(int64_t size, const Body& body) {
    for (int64_t i = 0; i < size; i += LANES) body(i, size - i < LANES ? size - i : LANES);
}

static inline Vec load_some(const float* at, int64_t n) { return n == LANES ? load(at) : load_part(at, n); }

static inline void store_some(float* at, Vec v, int64_t n) {
    if (n == LANES) store(at, v);
    else store_part(at, v, n);
}

// x + gate * value, for one stream of width d.
static void engram_gate(const float* x, const float* key, const float* value, const float* weight, int64_t d, float eps,
                        float* out) {
    Vec of_x{}, of_key{}, of_both{};
    for_each_vec(d, [&](int64_t i, int64_t n) {
        const Vec a = load_some(x + i, n), b = load_some(key + i, n);
        of_x += a * a;
        of_key += b * b;
        of_both += a * load_some(weight + i, n) * b;
    });
    const float size = static_cast<float>(d);
    const float norms = 1 / std::sqrt(sum_lanes(of_x) / size + eps) * (1 / std::sqrt(sum_lanes(of_key) / size + eps));
    const float dot = sum_lanes(of_both) * norms / std::sqrt(size), tiny = 1e-6f;
    const float root = std::copysign(std::sqrt(std::fabs(dot) < tiny ? tiny : std::fabs(dot)), dot);
    const Vec gate = strict_sigmoid(splat(root));
    for_each_vec(d, [&](int64_t i, int64_t n) {
        store_some(out + i, load_some(x + i, n) + gate * load_some(value + i, n), n);
    });
}

// Two positions by a softmax of their gates, channel by channel.
static void pool_pair(const float* even, const float* even_gate, const float* odd, const float* odd_gate, int64_t d,
                      float* out) {
    for_each_vec(d, [&](int64_t i, int64_t n) {
        const Vec more = load_some(even_gate + i, n) - load_some(odd_gate + i, n);
        const Vec a = load_some(even + i, n) * strict_sigmoid(more), b = load_some(odd + i, n) * strict_sigmoid(-more);
        store_some(out + i, a + b, n);
    });
}

}  // namespace
