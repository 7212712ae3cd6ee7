// Attention over latents: each row by itself, over the keys that it sees.
#include <vector>

#include "isa.h"
#include "parallel.h"

using namespace treadle;

// q and out [rows, heads, d]; window [num_window, d], mask [rows, num_window] bytes; entries [num_entries, d], chosen
// [rows, num_chosen], negative where unused. All contiguous, d a multiple of 16. Returns 1 for an entry that does not
// exist.
extern "C" int treadle_latent_attention(const float* q, int64_t rows, int64_t heads, int64_t d, const float* window,
                                        int64_t num_window, const uint8_t* mask, const float* entries,
                                        int64_t num_entries, const int64_t* chosen, int64_t num_chosen,
                                        const float* sink, float scale, float* out, int64_t threads) {
    for (int64_t i = 0; i < rows * num_chosen; ++i)
        if (chosen[i] >= num_entries) return 1;
    // a row costs about two products of every key with every head
    for_each_row(rows, 2 * heads * d * (num_window + num_chosen) / 16, threads, [&](int64_t r) {
        static thread_local std::vector<const float*> keys;
        static thread_local std::vector<float> scores;
        keys.clear();
        for (int64_t k = 0; k < num_window; ++k)
            if (mask[r * num_window + k]) keys.push_back(window + k * d);
        for (int64_t i = 0; i < num_chosen; ++i)
            if (chosen[r * num_chosen + i] >= 0) keys.push_back(entries + chosen[r * num_chosen + i] * d);
        scores.resize(keys.size());
        const LatentRow row = {q + r * heads * d, keys.data(), static_cast<int64_t>(keys.size()), heads, d, scale,
                               out + r * heads * d};
        kernels().latent_row(row, sink, scores.data());
    });
    return 0;
}
