// Rotary positions of adjacent pairs, on the last channels of every head. Plain code: the angles cost the most.
#include <cmath>
#include <cstring>
#include <vector>

#include "parallel.h"

// x and out [rows, heads, d] contiguous; the last 2 * half channels are turned by position * frequency, or back.
extern "C" int treadle_rope_pairs(const float* x, int64_t rows, int64_t heads, int64_t d, const int64_t* positions,
                                  const float* frequencies, int64_t half, int64_t is_inverse, float* out,
                                  int64_t threads) {
    treadle::for_each_row(rows, heads * d + 64 * half, threads, [&](int64_t r) {
        static thread_local std::vector<float> table;
        table.resize(2 * half);
        float *cos = table.data(), *sin = cos + half;
        for (int64_t i = 0; i < half; ++i) {
            const float angle = static_cast<float>(positions[r]) * frequencies[i];
            cos[i] = std::cos(angle);
            sin[i] = is_inverse ? -std::sin(angle) : std::sin(angle);
        }
        std::memcpy(out + r * heads * d, x + r * heads * d, heads * d * sizeof(float));
        for (int64_t h = 0; h < heads; ++h) {
            float* turned = out + (r * heads + h + 1) * d - 2 * half;
            for (int64_t i = 0; i < half; ++i) {
                const float even = turned[2 * i], odd = turned[2 * i + 1];
                turned[2 * i] = even * cos[i] - odd * sin[i];
                turned[2 * i + 1] = even * sin[i] + odd * cos[i];
            }
        }
    });
    return 0;
}
