// Per-row kernels shared by all instruction sets; included after vec.h by each isa_*.cpp (see there).
#pragma once

#include <cmath>

#include "half.h"
#include "isa.h"

namespace {

using namespace treadle;

// Half a group as bytes: the high ones, and a group's length further on the low ones; v = 256 high + low.
static inline void store_planes(IntVec v, int64_t half, int8_t* group) {
    const IntVec high = (v + 128) >> 8;
    const ByteVec bytes[2] = {__builtin_convertvector(high, ByteVec), __builtin_convertvector(v - (high << 8), ByteVec)};
    std::memcpy(group + half * LANES, &bytes[0], LANES);
    std::memcpy(group + GROUP + half * LANES, &bytes[1], LANES);
}

// Half a group as 16-bit words; of each four, the even ones stand before the odd ones.
static inline void store_words(IntVec v, int64_t half, int8_t* group) {
    v = __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const WordVec words = __builtin_convertvector(v, WordVec);
    std::memcpy(group + half * LANES * 2, &words, LANES * 2);
}

template <void (*STORE)(IntVec, int64_t, int8_t*)>
static void quantize_row(const float* x, int64_t k, int8_t* values, float* scales, int32_t* offsets) {
    constexpr float TINY = 1e-30f;  // LEVELS over less than this may overflow; such a group is zero
    for (int64_t g = 0; g < k / GROUP; ++g) {
        const Vec a = load(x + g * GROUP), b = load(x + g * GROUP + LANES);
        const float peak = max_lanes(vmax(vabs(a), vabs(b)));
        const float inverse = peak > TINY ? LEVELS / peak : 0;
        const IntVec qa = nearest(a * inverse), qb = nearest(b * inverse);
        STORE(qa, 0, values + g * GROUP * 2);
        STORE(qb, 1, values + g * GROUP * 2);
        scales[g] = peak / LEVELS;
        // |sum| < 2^21, exact in float
        offsets[g] = -128 * static_cast<int32_t>(sum_lanes(__builtin_convertvector(qa + qb, Vec)));
    }
}

static bool pack_block(const float* rows, int64_t num_rows, int64_t k, int8_t* data, uint16_t* scales) {
    bool finite = true;
    for (int64_t j = 0; j < num_rows; ++j) {
        for (int64_t g = 0; g < k / GROUP; ++g) {
            const float* group = rows + j * k + g * GROUP;
            const Vec a = load(group), b = load(group + LANES);
            finite &= sum_lanes(a * 0.0f + b * 0.0f) == 0;  // not a number times zero is not zero
            const uint16_t scale = to_half(max_lanes(vmax(vabs(a), vabs(b))) / 127);
            finite &= scale < 0x7c00;
            const float inverse = scale ? 1 / from_half(scale) : 0;
            const Vec limit = splat(127);
            const IntVec qa = nearest(vmax(vmin(a * inverse, limit), -limit));
            const IntVec qb = nearest(vmax(vmin(b * inverse, limit), -limit));
            const ByteVec bytes[2] = {__builtin_convertvector(qa, ByteVec), __builtin_convertvector(qb, ByteVec)};
            int8_t quants[GROUP];
            std::memcpy(quants, bytes, GROUP);
            for (int64_t k4 = 0; k4 < GROUP / 4; ++k4)
                std::memcpy(data + ((g * (GROUP / 4) + k4) * BLOCK + j) * 4, quants + k4 * 4, 4);
            scales[g * BLOCK + j] = scale;
        }
    }
    return finite;
}

// data and scales point at the row's own column of its block.
static void unpack_row(const int8_t* data, const uint16_t* scales, int64_t k, float scale, float* out) {
    for (int64_t g = 0; g < k / GROUP; ++g) {
        const float factor = from_half(scales[g * BLOCK]) * scale;
        for (int64_t k4 = g * (GROUP / 4); k4 < (g + 1) * (GROUP / 4); ++k4)
            for (int64_t i = 0; i < 4; ++i) out[k4 * 4 + i] = data[k4 * BLOCK * 4 + i] * factor;
    }
}

static void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
    const int64_t whole = n - n % LANES, rest = n - whole;
    Vec squares{};
    for (int64_t i = 0; i < whole; i += LANES) squares += load(x + i) * load(x + i);
    const Vec last = load_part(x + whole, rest);
    squares += last * last;
    const float inverse = 1 / std::sqrt(sum_lanes(squares) / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < whole; i += LANES) store(out + i, load(x + i) * inverse * load(weight + i));
    if (rest) store_part(out + whole, last * inverse * load_part(weight + whole, rest), rest);
}

static void add(const float* x, int64_t n, float* sum) {
    const int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES) store(sum + i, load(sum + i) + load(x + i));
    for (int64_t i = whole; i < n; ++i) sum[i] += x[i];
}

static void rotate(float* x, const Rotation& rotation) {
    const int64_t half = rotation.half, whole = half - half % LANES;
    const float *cos = rotation.cos_sin, *sin = cos + half;
    float* y = x + half;
    for (int64_t i = 0; i < whole; i += LANES) {
        const Vec a = load(x + i), b = load(y + i), c = load(cos + i), s = load(sin + i);
        store(x + i, a * c - b * s);
        store(y + i, b * c + a * s);
    }
    for (int64_t i = whole; i < half; ++i) {
        const float a = x[i], b = y[i];
        x[i] = a * cos[i] - b * sin[i];
        y[i] = b * cos[i] + a * sin[i];
    }
}

// gelu_tanh(g) = g / 2 * (1 + tanh z) = g * sigmoid(2 z), so both gates are a product with a sigmoid.
static inline Vec gate_value(Vec g, Gate kind) {
    if (kind == Gate::silu) return g * sigmoid(g);
    return g * sigmoid(1.5957691216f * (g + 0.044715f * g * g * g));
}

static void gated(const float* gate, const float* up, int64_t n, Gate kind, float* out) {
    const int64_t whole = n - n % LANES, rest = n - whole;
    for (int64_t i = 0; i < whole; i += LANES) store(out + i, gate_value(load(gate + i), kind) * load(up + i));
    if (rest) store_part(out + whole, gate_value(load_part(gate + whole, rest), kind) * load_part(up + whole, rest), rest);
}

}  // namespace
