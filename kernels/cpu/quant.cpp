// Packing of weights, and rows read back from packed ones.
#include <algorithm>
#include <atomic>

#include "isa.h"
#include "parallel.h"

using treadle::BLOCK;
using treadle::GROUP;

// data and scales are zeroed by the caller where features is no multiple of 16. Returns 1 for a weight that is not
// finite or whose scale overflows float16.
extern "C" int treadle_pack_q8(const float* weight, int64_t features, int64_t k, int8_t* data, uint16_t* scales,
                               int64_t threads) {
    std::atomic<bool> finite{true};
    treadle::for_each_row((features + BLOCK - 1) / BLOCK, BLOCK * k, threads, [&](int64_t block) {
        const int64_t first = block * BLOCK;
        if (!treadle::kernels().pack_block(weight + first * k, std::min(BLOCK, features - first), k, data + first * k,
                                           scales + first * (k / GROUP)))
            finite = false;
    });
    return finite ? 0 : 1;
}

// Returns 1 for an id outside [0, features).
extern "C" int treadle_q8_rows(const int8_t* data, const uint16_t* scales, int64_t features, int64_t k,
                               const int64_t* ids, int64_t count, float scale, float* out, int64_t threads) {
    for (int64_t i = 0; i < count; ++i)
        if (ids[i] < 0 || ids[i] >= features) return 1;
    treadle::for_each_row(count, k, threads, [&](int64_t i) {
        const int64_t block = ids[i] / BLOCK * BLOCK, column = ids[i] % BLOCK;
        treadle::kernels().unpack_row(data + block * k + column * 4, scales + block * (k / GROUP) + column, k, scale,
                                      out + i * k);
    });
    return 0;
}
