// Mixtures of experts: routing, and the chosen experts of all rows at once.
#include <cmath>

#include "packed.h"

using namespace treadle;

namespace {

// Reused by the calls of a thread. A pair is one row at one expert that is held; pairs are sorted by expert.
struct Scratch {
    std::vector<int64_t> first;       // of each expert: its first pair; then one past the last
    std::vector<int64_t> row, place;  // of each pair
    std::vector<int64_t> pairs;       // [rows, count]: of each row, by ascending expert
    std::vector<int64_t> found;       // of each row: how many it has
    std::vector<int64_t> next;        // of each expert: where its next pair goes
    std::vector<float> rounded, gate_up, inner, outer;
    std::vector<Product> products;
};

// `chosen` are numbers of experts, of which `held` from `start` on are held. Returns the number of pairs.
int64_t sort_pairs(const int64_t* chosen, int64_t rows, int64_t count, int64_t start, int64_t held, Scratch& s) {
    const auto is_held = [&](int64_t i) { return chosen[i] >= start && chosen[i] < start + held; };
    s.first.assign(held + 1, 0);
    for (int64_t i = 0; i < rows * count; ++i)
        if (is_held(i)) ++s.first[chosen[i] - start + 1];
    for (int64_t e = 0; e < held; ++e) s.first[e + 1] += s.first[e];
    const int64_t num_pairs = s.first[held];
    s.row.resize(num_pairs), s.place.resize(num_pairs), s.pairs.resize(rows * count);
    s.next = s.first;
    for (int64_t i = 0; i < rows * count; ++i) {
        if (!is_held(i)) continue;
        const int64_t pair = s.next[chosen[i] - start]++;
        s.row[pair] = i / count;
        s.place[pair] = i;
    }
    s.found.assign(rows, 0);
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
        const int64_t r = s.row[pair];
        s.pairs[r * count + s.found[r]++] = pair;
    }
    return num_pairs;
}

// Each expert that has pairs: its slice of `all`, for its pairs.
void expert_products(const Matrix& all, int64_t features, const float* x, bool by_row, float* out, Scratch& s) {
    s.products.clear();
    for (size_t e = 0; e + 1 < s.first.size(); ++e) {
        const int64_t start = s.first[e], rows = s.first[e + 1] - start;
        if (!rows) continue;
        const MatrixRows picked = {by_row ? x : x + start * all.k, all.k, by_row ? s.row.data() + start : nullptr, rows,
                                   out + start * features, features};
        s.products.push_back({all.from(static_cast<int64_t>(e) * features / BLOCK), picked, features, features / BLOCK});
    }
}

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

// logits [rows, experts]; chosen [rows, count], weights [rows, count]. At an equal score the lower expert is taken.
extern "C" int treadle_route(const float* logits, const float* bias, int64_t rows, int64_t experts, int64_t count,
                             float factor, int64_t* chosen, float* weights) {
    static thread_local std::vector<float> scores, ranks;
    scores.resize(experts), ranks.resize(experts);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t e = 0; e < experts; ++e) {
            scores[e] = std::sqrt(softplus(logits[r * experts + e]));
            ranks[e] = scores[e] + bias[e];
            if (std::isnan(ranks[e])) ranks[e] = INFINITY;  // sorted first, as torch does
        }
        float sum = 0;
        for (int64_t i = 0; i < count; ++i) {
            int64_t best = -1;
            for (int64_t e = 0; e < experts; ++e) {
                bool taken = false;
                for (int64_t j = 0; j < i; ++j) taken |= chosen[r * count + j] == e;
                if (!taken && (best < 0 || ranks[e] > ranks[best])) best = e;
            }
            chosen[r * count + i] = best;
            weights[r * count + i] = scores[best];
            sum += scores[best];
        }
        for (int64_t i = 0; i < count; ++i) weights[r * count + i] = weights[r * count + i] / (sum + 1e-20f) * factor;
    }
    return 0;
}

// gate and up [rows, n] with one row stride; out [rows, n].
extern "C" int treadle_clamped_swiglu(const float* gate, const float* up, int64_t stride, int64_t rows, int64_t n,
                                      float limit, float* out, int64_t threads) {
    for_each_row(rows, 4 * n, threads, [&](int64_t r) {
        kernels().clamped_swiglu(gate + r * stride, up + r * stride, n, limit, 1, out + r * n);
    });
    return 0;
}

// x and out [rows, d] contiguous. gate_up: fp4, experts * 2 * inner features of d inputs; down: experts * d of inner.
// Of all experts those from `first` on are here; the others are left out.
extern "C" int treadle_moe_experts(const float* x, int64_t rows, int64_t d, const int64_t* chosen,
                                   const float* weights, int64_t count, int64_t first, int64_t experts,
                                   int64_t inner, const uint8_t* gate_up, const uint8_t* gate_up_scales, const uint8_t* down,
                                   const uint8_t* down_scales, float limit, int64_t is_rounding, float* out,
                                   int64_t threads) {
    static thread_local Scratch scratch;
    Scratch& s = scratch;  // helpers must see the caller's
    const int64_t pairs = sort_pairs(chosen, rows, count, first, experts, s);
    s.gate_up.resize(pairs * 2 * inner), s.inner.resize(pairs * inner), s.outer.resize(pairs * d);
    if (is_rounding) {
        s.rounded.resize(rows * d);
        for_each_row(rows, 4 * d, threads,
                     [&](int64_t r) { kernels().round_row(RowKind::fp8, x + r * d, d, s.rounded.data() + r * d); });
        x = s.rounded.data();
    }
    expert_products({MatrixKind::fp4, gate_up, gate_up_scales, d}, 2 * inner, x, true, s.gate_up.data(), s);
    run_products(s.products, threads);
    for_each_row(pairs, 8 * inner, threads, [&](int64_t pair) {
        const float* gate = s.gate_up.data() + pair * 2 * inner;
        float* to = s.inner.data() + pair * inner;
        kernels().clamped_swiglu(gate, gate + inner, inner, limit, weights[s.place[pair]], to);
        if (is_rounding) kernels().round_row(RowKind::fp8, to, inner, to);
    });
    expert_products({MatrixKind::fp4, down, down_scales, inner}, d, s.inner.data(), false, s.outer.data(), s);
    run_products(s.products, threads);
    for_each_row(rows, count * d, threads, [&](int64_t r) {
        std::fill(out + r * d, out + (r + 1) * d, 0.0f);
        for (int64_t i = 0; i < s.found[r]; ++i) kernels().add(s.outer.data() + s.pairs[r * count + i] * d, d, out + r * d);
    });
    return 0;
}
