// Sparse selection: scores of entries, the best of a row, the best blocks of a row.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "isa.h"
#include "parallel.h"

using namespace treadle;

namespace {

constexpr float NOT_VISIBLE = -INFINITY;

// Whether entry a comes before b: not-a-number first, as torch sorts it; of equal scores the lower entry.
bool is_better(const float* scores, int64_t a, int64_t b) {
    const float x = scores[a], y = scores[b];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
    return std::isnan(x) || x == y ? a < b : x > y;
}

// Entry numbers of the `count` best of n scores, ascending; returns how many there are.
int64_t best(const float* scores, int64_t n, int64_t count, int64_t* out) {
    static thread_local std::vector<int64_t> order;
    order.clear();
    for (int64_t e = 0; e < n; ++e)
        if (scores[e] != NOT_VISIBLE) order.push_back(e);
    const int64_t found = static_cast<int64_t>(order.size()), kept = std::min(found, count);
    if (found > kept) {
        std::nth_element(order.begin(), order.begin() + kept, order.end(),
                         [&](int64_t a, int64_t b) { return is_better(scores, a, b); });
        std::sort(order.begin(), order.begin() + kept);
    }
    std::copy(order.begin(), order.begin() + kept, out);
    return kept;
}

}  // namespace

// q [rows, heads, d], weight [rows, heads], keys [entries, d], visible [rows]; out [rows, entries]. d is even.
extern "C" int treadle_index_scores(const float* q, const float* weight, int64_t rows, int64_t heads, int64_t d,
                                    const float* keys, int64_t entries, const int64_t* visible, float* out,
                                    int64_t threads) {
    static thread_local std::vector<float> buffer;
    const int64_t blocks = (entries + BLOCK - 1) / BLOCK;
    buffer.assign(blocks * BLOCK * d, 0.0f);
    float* turned = buffer.data();  // helpers must see the caller's
    for (int64_t e = 0; e < entries; ++e)
        for (int64_t i = 0; i < d; ++i) turned[(e / BLOCK * d + i) * BLOCK + e % BLOCK] = keys[e * d + i];
    for_each_row(rows, heads * d * entries / 16, threads, [&](int64_t r) {
        float* row = out + r * entries;
        const int64_t seen = std::min(entries, visible[r]);
        for (int64_t first = 0; first < seen; first += BLOCK) {
            float scores[BLOCK];
            kernels().index_block(q + r * heads * d, weight + r * heads, heads, d, turned + first * d, scores);
            std::copy(scores, scores + std::min(BLOCK, seen - first), row + first);
        }
        std::fill(row + std::max<int64_t>(0, seen), row + entries, NOT_VISIBLE);
    });
    return 0;
}

// scores [rows, entries]; out [rows, count], -1 where fewer are visible.
extern "C" int treadle_select_entries(const float* scores, int64_t rows, int64_t entries, int64_t count, int64_t* out,
                                      int64_t threads) {
    for_each_row(rows, 4 * entries, threads, [&](int64_t r) {
        int64_t* row = out + r * count;
        const int64_t kept = best(scores + r * entries, entries, count, row);
        std::fill(row + kept, row + count, -1);
    });
    return 0;
}

// scores [rows, entries], visible [rows]; out [rows, entries] bytes: in one of the `count` best blocks of `block`.
extern "C" int treadle_candidate_blocks(const float* scores, const int64_t* visible, int64_t rows, int64_t entries,
                                        int64_t block, int64_t count, uint8_t* out, int64_t threads) {
    const int64_t blocks = (entries + block - 1) / block;
    for_each_row(rows, 4 * entries, threads, [&](int64_t r) {
        static thread_local std::vector<float> peaks;
        static thread_local std::vector<int64_t> kept;
        peaks.assign(blocks, NOT_VISIBLE);
        kept.resize(blocks);
        for (int64_t e = 0; e < entries; ++e) {
            float& peak = peaks[e / block];
            const float score = scores[r * entries + e];
            if (std::isnan(score) || score > peak) peak = score;
        }
        const int64_t seen = std::min(entries, visible[r]);
        if (seen > 0) peaks[(seen - 1) / block] = INFINITY;
        const int64_t found = best(peaks.data(), blocks, std::min(count, blocks), kept.data());
        uint8_t* row = out + r * entries;
        std::fill(row, row + entries, 0);
        for (int64_t i = 0; i < found; ++i)
            std::fill(row + kept[i] * block, row + std::min(entries, (kept[i] + 1) * block), 1);
    });
    return 0;
}
